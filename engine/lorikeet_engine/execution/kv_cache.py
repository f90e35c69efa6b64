"""The KV tensors: per layer K and V [blocks, KV heads, block, D].

The bytes half of the KV pool and of the swap pool in host memory; who may use which block or slot is decided in
`memory`. Block 0 is zero, belongs to nobody and pads every block table, so that a padded entry reads zeros and never
another request's tokens. Nothing here may write to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from lorikeet_engine.model_spec import ModelSpec
from lorikeet_engine.models.inputs import KvLayer
from lorikeet_engine.scheduling.plan import BlockCopy


class KvCache:
    """Pages on the device, slots of the same shape in host memory, and whole-block copies between them."""

    def __init__(
        self, spec: ModelSpec, *, n_blocks: int, block_size: int, dtype: torch.dtype, n_host_slots: int = 0
    ) -> None:
        page = (spec.n_kv_heads, block_size, spec.head_dim)
        self.layers = _zeros(spec.n_layers, (n_blocks, *page), dtype)
        self.host_layers = _zeros(spec.n_layers, (n_host_slots, *page), dtype)
        self.n_blocks = n_blocks
        self.n_host_slots = n_host_slots
        self.block_size = block_size

    def swap_out(self, copies: Sequence[BlockCopy]) -> None:
        """Device blocks to host slots."""
        _check("device block", (copy.source for copy in copies), range(1, self.n_blocks))
        _check("host slot", (copy.target for copy in copies), range(self.n_host_slots))
        _copy(self.layers, self.host_layers, copies)

    def swap_in(self, copies: Sequence[BlockCopy]) -> None:
        """Host slots to device blocks."""
        _check("host slot", (copy.source for copy in copies), range(self.n_host_slots))
        _check("device block", (copy.target for copy in copies), range(1, self.n_blocks))
        _copy(self.host_layers, self.layers, copies)

    def copy(self, copies: Sequence[BlockCopy]) -> None:
        """Device blocks to device blocks; all sources are read as they were before."""
        _check("device block", (block for copy in copies for block in copy), range(1, self.n_blocks))
        _copy(self.layers, self.layers, copies)


def _zeros(n_layers: int, shape: tuple[int, ...], dtype: torch.dtype) -> tuple[KvLayer, ...]:
    return tuple(KvLayer(torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=dtype)) for _ in range(n_layers))


def _check(what: str, ids: Iterable[int], allowed: range) -> None:
    for number in ids:
        if number not in allowed:
            raise ValueError(f"{what} {number} is outside {allowed.start}..{allowed.stop - 1}")


def _copy(sources: Sequence[KvLayer], targets: Sequence[KvLayer], copies: Sequence[BlockCopy]) -> None:
    """One gather and one scatter a tensor, however many blocks there are."""
    if len({copy.target for copy in copies}) < len(copies):
        raise ValueError(f"two copies have one target: {copies}")
    read = torch.tensor([copy.source for copy in copies])
    write = torch.tensor([copy.target for copy in copies])
    for source, target in zip(sources, targets, strict=True):
        target.k.index_copy_(0, write, source.k.index_select(0, read))
        target.v.index_copy_(0, write, source.v.index_select(0, read))
