"""8-bit weights: how they are made of a model's, and the native CPU ops that multiply by them.

Weights only, symmetric, a float32 scale for each output, round to nearest (Krishnamoorthi, "Quantizing deep
convolutional networks for efficient inference", 2018, sections 2.2 and 2.5): s = max |w| / 127, q = round(w / s), so
that no weight is off by more than s / 2. Activations, biases and adapters stay what they are. Knows nothing of models.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from lorikeet_engine.ops.interface import PackedLinear
from lorikeet_engine.ops.native.ops import SUFFIX, WORD_BYTES, NativeCpuOps, panels, rows_of_panels, whole
from lorikeet_engine.ops.native.tape import address_of

LARGEST = 127  # of an integer; -128 has no counterpart
ROWS = 1024  # outputs rounded at a time: a vocabulary's quotients would take another gigabyte


@dataclass(frozen=True, slots=True)
class Int8Linear(PackedLinear):
    """Panels of integers, and the scale of each output, both up to whole vectors of outputs."""

    scale: torch.Tensor

    @property
    def nbytes(self) -> int:
        return self.weight.nbytes + self.scale.nbytes + (self.bias.nbytes if self.bias is not None else 0)


class Int8CpuOps(NativeCpuOps):
    """The native ops with 8-bit weights, for models that compute in `dtype`."""

    def __init__(self, library: ctypes.CDLL, dtype: torch.dtype) -> None:
        super().__init__(library)
        self._dtype = dtype
        self._step = WORD_BYTES // dtype.itemsize
        self._int8 = address_of(library, f"linear_int8_{SUFFIX[dtype]}")

    def pack_linear(self, *, weight: torch.Tensor, bias: torch.Tensor | None) -> Int8Linear:
        out_features, in_features = weight.shape
        integers, scale = quantise(weight)
        packed = panels(whole(integers), self._step)
        bias = None if bias is None else whole(bias)
        return Int8Linear(packed, bias, in_features, out_features, whole(scale))

    def unpack_linear(self, *, linear: PackedLinear, first: int, end: int, n_rows: int) -> Iterator[torch.Tensor]:
        assert isinstance(linear, Int8Linear)
        for begin in range(first, end, n_rows):
            upto = min(begin + n_rows, end)
            yield dequantise(rows_of_panels(linear, self._step, begin, upto), linear.scale[begin:upto])

    def linear(self, *, x: torch.Tensor, linear: PackedLinear) -> torch.Tensor:
        assert isinstance(linear, Int8Linear)
        if x.dtype != self._dtype:
            raise ValueError(f"these weights are packed for {self._dtype}, not for {x.dtype}")
        return self._multiply(self._int8, x, linear, linear.scale.data_ptr())


def quantise(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """int8 [out, in] and float32 [out]: weight = integer * scale, to half a scale."""
    low, high = weight.aminmax(dim=1)  # and not abs(), which would be a second copy
    largest = torch.maximum(-low, high).float()
    if not bool(torch.isfinite(largest).all()):
        raise ValueError("quantization int8: a weight is not finite")
    scale = largest / LARGEST
    scale[scale == 0] = 1.0
    integers = torch.empty(weight.shape, dtype=torch.int8)
    for first in range(0, len(weight), ROWS):
        rows = slice(first, first + ROWS)
        integers[rows] = (weight[rows] / scale[rows, None]).round_().clamp_(-LARGEST, LARGEST)
    return integers, scale


def dequantise(integers: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Float32 [out, in]: the weights that 8-bit linears multiply by."""
    return integers * scale[:, None]
