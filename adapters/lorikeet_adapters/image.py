"""The packed form of an adapter: one contiguous extent, ready to be copied into the device arena.

Needs torch. The layout is planned by `manifest`; here the bytes are put where it says: A as it is, B transposed with
the scale folded in (in float32, then rounded to the arena's dtype), and behind them the vector of a pair that has one,
float32:

    the bias of lora_B     scale * bias, which is added to the output
    DoRA's magnitude m     h = g - 1, times what the base weight W gave, is added; g is folded into B as well
                           g = m / |W + scale * B A|, a length for every row, which is a job for `BaseLinears`

Invariant: every element of every block is finite, since one infinity would reach the rows of other adapters through
a masked product (0 · inf = NaN).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import torch

from lorikeet_adapters.digest import read_normalised_file
from lorikeet_adapters.errors import AdapterRejected
from lorikeet_adapters.header import TensorEntry
from lorikeet_adapters.manifest import DORA, FLAG_SHIFT, GRAIN, head_grains, plan_extent
from lorikeet_adapters.modules import MODULES, ModuleTable
from lorikeet_adapters.validate import Delta

_DTYPES: Final = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32}


@dataclass(frozen=True, slots=True)
class AdapterImage:
    """An adapter as the arena holds it; `extent` is one-dimensional and has 16 · n_grains elements."""

    digest: str
    rank_max: int
    n_grains: int
    extent: torch.Tensor


class BaseLinears(Protocol):
    """The base model's own weights, as they are served."""

    def row_norms(self, layer: int, module: str, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Float32 [out]: the length of every row of W + b a, for float32 a [rank, in] and b [out, rank]."""
        ...


def pack_image(
    normalised: bytes, *, digest: str, table: ModuleTable, dtype: torch.dtype, base: BaseLinears | None = None
) -> AdapterImage:
    """Pack a normalised file for the base model of `table`, whose weights are `base`.

    Raises AdapterImageDamaged when the content is not that of `digest`, and AdapterRejected when it belongs to
    another base model, overflows `dtype`, or is DoRA while there is no `base`.
    """
    deltas = read_normalised_file(normalised, digest).deltas
    for delta in deltas:
        _check_fits(delta, table)
    plan = plan_extent(table.n_layers, dtype.itemsize, (delta.block for delta in deltas))
    extent = torch.zeros(plan.n_grains * GRAIN, dtype=dtype)
    head = torch.zeros(table.n_layers, len(MODULES), 2, dtype=torch.int32)
    for delta, start in zip(deltas, plan.starts, strict=True):
        entry = torch.tensor([start, delta.rank | delta.kind << FLAG_SHIFT], dtype=torch.int32)
        head[delta.layer, MODULES.index(delta.module)] = entry
        _fill_block(extent[start * GRAIN :], delta, normalised, base)
    head_elements = head_grains(table.n_layers, dtype.itemsize) * GRAIN
    extent[:head_elements].view(torch.int32)[: head.numel()] = head.flatten()
    return AdapterImage(digest, max(delta.rank for delta in deltas), plan.n_grains, extent)


def _check_fits(delta: Delta, table: ModuleTable) -> None:
    linear = table.linears.get(delta.module)
    if delta.layer < table.n_layers and linear is not None:
        if linear.in_features % GRAIN or linear.out_features % GRAIN:
            raise ValueError(f"{delta.module} of {table.base_model} is not a multiple of {GRAIN} wide")
        if (delta.a.shape[1], delta.b.shape[0]) == (linear.in_features, linear.out_features):
            return
    raise AdapterRejected(
        "base_model_mismatch",
        subject=delta.a.name,
        found=f"a pair from {delta.a.shape[1]} to {delta.b.shape[0]} features",
        allowed=f"the modules of {table.base_model}",
    )


def _fill_block(block: torch.Tensor, delta: Delta, normalised: bytes, base: BaseLinears | None) -> None:
    """Write one pair to the front of `block`."""
    rank, n_in = delta.a.shape
    n_out = delta.b.shape[0]
    middle, end = rank * n_in, rank * (n_in + n_out)
    a = block[:middle].view(rank, n_in).copy_(_tensor(normalised, delta.a))
    _check_finite(a, delta.a)
    b = _tensor(normalised, delta.b).to(torch.float32) * delta.scale
    if delta.vector is not None:
        vector = _tensor(normalised, delta.vector).to(torch.float32)
        if delta.kind == DORA:
            factor = _magnitude_factor(vector, b, delta, normalised, base)
            b, vector = b.mul_(factor[:, None]), factor - 1
        else:
            vector = vector * delta.scale
        _check_finite(vector, delta.vector)
        n_elements = n_out * torch.float32.itemsize // block.dtype.itemsize
        block[end : end + n_elements].view(torch.float32).copy_(vector)
    _check_finite(block[middle:end].view(rank, n_out).copy_(b.T), delta.b)


def _magnitude_factor(
    magnitude: torch.Tensor, scaled_b: torch.Tensor, delta: Delta, normalised: bytes, base: BaseLinears | None
) -> torch.Tensor:
    """g of every row. With A as it was trained: PEFT keeps it in float32, whatever the base model is served in."""
    if base is None:
        raise AdapterRejected(
            "feature_unsupported",
            subject="use_dora",
            found="DoRA where the base model's weights are not at hand",
            allowed="adapters without it",
        )
    a = _tensor(normalised, delta.a).to(torch.float32)
    return magnitude / base.row_norms(delta.layer, delta.module, a, scaled_b)


def _check_finite(values: torch.Tensor, tensor: TensorEntry) -> None:
    if not bool(torch.isfinite(values).all()):
        raise AdapterRejected(
            "weight_out_of_range",
            subject=tensor.name,
            found=f"values that are not finite as they are served, in {str(values.dtype).removeprefix('torch.')}",
            allowed="finite values",
        )


def _tensor(normalised: bytes, tensor: TensorEntry) -> torch.Tensor:
    # A bytearray because torch warns of memory it could write to and must not; one tensor at a time is copied.
    raw = bytearray(memoryview(normalised)[tensor.begin : tensor.end])
    return torch.frombuffer(raw, dtype=_DTYPES[tensor.dtype]).view(tensor.shape)
