"""The packed form of an adapter: one contiguous extent, ready to be copied into the device arena.

The only module of this package that needs torch. The layout is planned by `manifest`; here the bytes are put where
it says: A as it is, B transposed with the scale folded in (in float32, then rounded to the arena's dtype).

Invariant: every element of every block is finite, since one infinity would reach the rows of other adapters through
a masked product (0 · inf = NaN).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch

from lorikeet_adapters.digest import read_normalised_file
from lorikeet_adapters.errors import AdapterRejected
from lorikeet_adapters.header import TensorEntry
from lorikeet_adapters.manifest import GRAIN, head_grains, plan_extent
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


def pack_image(normalised: bytes, *, digest: str, table: ModuleTable, dtype: torch.dtype) -> AdapterImage:
    """Pack a normalised file for the base model of `table`.

    Raises AdapterImageDamaged when the content is not that of `digest`, and AdapterRejected when it belongs to
    another base model or overflows `dtype`.
    """
    deltas = read_normalised_file(normalised, digest).deltas
    for delta in deltas:
        _check_fits(delta, table)
    plan = plan_extent(table.n_layers, dtype.itemsize, (delta.block for delta in deltas))
    extent = torch.zeros(plan.n_grains * GRAIN, dtype=dtype)
    head = torch.zeros(table.n_layers, len(MODULES), 2, dtype=torch.int32)
    for delta, start in zip(deltas, plan.starts, strict=True):
        head[delta.layer, MODULES.index(delta.module)] = torch.tensor([start, delta.rank], dtype=torch.int32)
        _fill_block(extent, start * GRAIN, delta, normalised)
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


def _fill_block(extent: torch.Tensor, begin: int, delta: Delta, normalised: bytes) -> None:
    rank, n_in = delta.a.shape
    n_out = delta.b.shape[0]
    middle = begin + rank * n_in
    end = middle + rank * n_out
    extent[begin:middle].view(rank, n_in).copy_(_matrix(normalised, delta.a))
    scaled = _matrix(normalised, delta.b).to(torch.float32) * delta.scale
    extent[middle:end].view(rank, n_out).copy_(scaled.T)
    if not bool(torch.isfinite(extent[begin:end]).all()):
        raise AdapterRejected(
            "weight_out_of_range",
            subject=delta.b.name,
            found=f"values beyond {extent.dtype} after scaling",
            allowed="finite values",
        )


def _matrix(normalised: bytes, tensor: TensorEntry) -> torch.Tensor:
    # A bytearray because torch warns of memory it could write to and must not; one matrix at a time is copied.
    raw = bytearray(memoryview(normalised)[tensor.begin : tensor.end])
    return torch.frombuffer(raw, dtype=_DTYPES[tensor.dtype]).view(tensor.shape)
