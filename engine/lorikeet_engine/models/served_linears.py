"""The base model's weights as `lorikeet_adapters.image` needs them to pack DoRA: the lengths of adapted rows.

What counts are the weights that are served: rounded to the model's dtype, and dequantised where they are 8-bit. They
are read out of their packed form, and only for adapters that need it, in a loader's thread and beside the steps: no
op of the running model is used. Knows nothing of adapters but the two matrices it is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch

from lorikeet_adapters.modules import MODULES, ModuleTable
from lorikeet_engine.models.weights import LayerWeights, Weights
from lorikeet_engine.ops.interface import DOWN, GATE_UP, OUTPUT, QKV, Ops, PackedLinear

PIECE_ELEMENTS = 1 << 22  # of a weight in float32 at once: 16 MiB


class Place(NamedTuple):
    """A module's rows in the fused linear that holds it."""

    linear: PackedLinear
    first: int
    n_rows: int


class ServedLinears:
    """`lorikeet_adapters.image.BaseLinears` over the weights of a loaded model; any thread may ask."""

    def __init__(self, *, ops: Ops, weights: Weights, table: ModuleTable) -> None:
        self._ops = ops
        self._layers = weights.layers
        self._widths = tuple(table.linears[name].out_features for name in MODULES)
        self._stream: torch.cuda.Stream | None = None
        if weights.embedding.is_cuda:  # beside the steps, and not in between
            self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            self._stream.wait_stream(torch.cuda.current_stream())

    def row_norms(self, layer: int, module: str, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Float32 [out]: the length of every row of W + b a, for float32 a [rank, in] and b [out, rank]."""
        place = self._place(self._layers[layer], MODULES.index(module))
        norms = torch.empty(place.n_rows)
        with torch.no_grad(), self._beside():
            begin = 0
            for weight in self._pieces(place):
                a = a.to(weight.device)
                rows = slice(begin, begin + len(weight))
                norms[rows] = torch.addmm(weight.float(), b[rows].to(a.device), a).norm(dim=1).cpu()
                begin = rows.stop
        return norms

    def _pieces(self, place: Place) -> Iterator[torch.Tensor]:
        n_rows = max(1, PIECE_ELEMENTS // place.linear.in_features)
        return self._ops.unpack_linear(
            linear=place.linear, first=place.first, end=place.first + place.n_rows, n_rows=n_rows
        )

    def _place(self, layer: LayerWeights, module: int) -> Place:
        sites = {QKV: layer.qkv, OUTPUT: layer.o, GATE_UP: layer.gate_up, DOWN: layer.down}
        site = next(modules for modules in sites if module in modules)
        before = (self._widths[other] for other in site if other < module)
        return Place(sites[site], sum(before), self._widths[module])

    def _beside(self) -> AbstractContextManager[object]:
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)
