"""The KV tensors: per layer K and V [blocks, KV heads, block, D].

The bytes half of the KV pool and of the swap pool in host memory; who may use which block or slot is decided in
`memory`. Block 0 is zero, belongs to nobody and pads every block table, so that a padded entry reads zeros and never
another request's tokens. Nothing here may write to it.

Swaps have a lane of their own. A block that is on its way out is not overwritten, and one on its way in not read,
before it has arrived: whoever hands over work on blocks calls `before_use` first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol

import torch

from lorikeet_engine.execution.streams.fences import PlaceFences
from lorikeet_engine.execution.streams.lanes import HostLanes, Lane, Lanes
from lorikeet_engine.execution.streams.pinned import pinned, upload
from lorikeet_engine.model_spec import ModelSpec
from lorikeet_engine.models.inputs import KvLayer
from lorikeet_engine.scheduling.plan import BlockCopy

SLAB_BLOCKS = 16  # copied at a time; bounds the memory that a swap takes besides the pools


class BlockMover(Protocol):
    """Copies whole blocks of all page tensors into a slab [n, tensors, elements of a block], and back."""

    def gather(self, blocks: torch.Tensor, slab: torch.Tensor) -> None: ...
    def scatter(self, slab: torch.Tensor, blocks: torch.Tensor) -> None: ...


class TorchMover:
    """With torch's own indexing, a call for each tensor."""

    def __init__(self, pages: Sequence[torch.Tensor]) -> None:
        self._pages = [tensor.flatten(1) for tensor in pages]

    def gather(self, blocks: torch.Tensor, slab: torch.Tensor) -> None:
        for index, tensor in enumerate(self._pages):
            slab[:, index] = tensor.index_select(0, blocks)

    def scatter(self, slab: torch.Tensor, blocks: torch.Tensor) -> None:
        for index, tensor in enumerate(self._pages):
            tensor.index_copy_(0, blocks, slab[:, index])


class KvCache:
    """Pages on the device, slots of whole blocks in host memory, and copies between them."""

    def __init__(
        self,
        spec: ModelSpec,
        *,
        n_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        n_host_slots: int = 0,
        device: torch.device | str = "cpu",
        lanes: Lanes | None = None,
        mover: Callable[[Sequence[torch.Tensor]], BlockMover] = TorchMover,
    ) -> None:
        page = (spec.n_kv_heads, block_size, spec.head_dim)
        self.layers = tuple(
            KvLayer(*(torch.zeros(n_blocks, *page, dtype=dtype, device=device) for _ in range(2)))
            for _ in range(spec.n_layers)
        )
        tensors = [tensor for layer in self.layers for tensor in (layer.k, layer.v)]
        # A slot holds all layers of one block, so that it is one copy over the bus.
        self._slots = pinned(torch.zeros(n_host_slots, len(tensors), *page, dtype=dtype), device)
        self.host_layers = tuple(
            KvLayer(self._slots[:, 2 * index], self._slots[:, 2 * index + 1]) for index in range(spec.n_layers)
        )
        self.n_blocks = n_blocks
        self.n_host_slots = n_host_slots
        self.block_size = block_size
        self._device = torch.device(device)
        self._slab_shape = (len(tensors), tensors[0][0].numel())
        self._mover = mover(tensors)
        self._lanes = lanes or HostLanes()
        self._fences = PlaceFences(self._lanes)

    def swap_out(self, copies: Sequence[BlockCopy]) -> None:
        """Device blocks to host slots, once what was handed over before has written the blocks."""
        _check("device block", (copy.source for copy in copies), range(1, self.n_blocks))
        _check("host slot", (copy.target for copy in copies), range(self.n_host_slots))
        _check_targets(copies)
        self._lanes.wait(Lane.SWAP, self._lanes.mark(Lane.COMPUTE))
        self._each_slab(Lane.SWAP, copies, self._slab_out)
        self._fences.put((copy.source for copy in copies), self._lanes.mark(Lane.SWAP))

    def swap_in(self, copies: Sequence[BlockCopy]) -> None:
        """Host slots to device blocks, once what was handed over before has read what was in the blocks."""
        _check("host slot", (copy.source for copy in copies), range(self.n_host_slots))
        _check("device block", (copy.target for copy in copies), range(1, self.n_blocks))
        _check_targets(copies)
        self._lanes.wait(Lane.SWAP, self._lanes.mark(Lane.COMPUTE))
        self._each_slab(Lane.SWAP, copies, self._slab_in)
        self._fences.put((copy.target for copy in copies), self._lanes.mark(Lane.SWAP))

    def copy(self, copies: Sequence[BlockCopy]) -> None:
        """Device blocks to device blocks; all sources are read as they were before."""
        _check("device block", (block for copy in copies for block in copy), range(1, self.n_blocks))
        _check_targets(copies)
        self.before_use(block for copy in copies for block in copy)
        self._lanes.run(Lane.COMPUTE, partial(self._copy, tuple(copies)))

    def before_use(self, blocks: Iterable[int]) -> None:
        """Let the compute lane wait for swaps of these blocks."""
        self._fences.pass_on(Lane.COMPUTE, blocks)

    def _each_slab(self, lane: Lane, copies: Sequence[BlockCopy], work: Callable[[Sequence[BlockCopy]], None]) -> None:
        for lot in _lots(copies):
            self._lanes.run(lane, partial(work, lot))

    def _slab_out(self, copies: Sequence[BlockCopy]) -> None:
        slab = self._slab(len(copies))
        self._mover.gather(upload([copy.source for copy in copies], self._device), slab)
        for copy, block in zip(copies, slab, strict=True):
            self._slots[copy.target].view(self._slab_shape).copy_(block, non_blocking=True)

    def _slab_in(self, copies: Sequence[BlockCopy]) -> None:
        slab = self._slab(len(copies))
        for copy, block in zip(copies, slab, strict=True):
            block.copy_(self._slots[copy.source].view(self._slab_shape), non_blocking=True)
        self._mover.scatter(slab, upload([copy.target for copy in copies], self._device))

    def _copy(self, copies: Sequence[BlockCopy]) -> None:
        slab = self._slab(len(copies))
        self._mover.gather(upload([copy.source for copy in copies], self._device), slab)
        self._mover.scatter(slab, upload([copy.target for copy in copies], self._device))

    def _slab(self, n: int) -> torch.Tensor:
        """Taken from the lane's own memory, hence given back in its order."""
        return torch.empty(n, *self._slab_shape, dtype=self.layers[0].k.dtype, device=self._device)


def _lots(copies: Sequence[BlockCopy]) -> Iterator[Sequence[BlockCopy]]:
    for first in range(0, len(copies), SLAB_BLOCKS):
        yield tuple(copies[first : first + SLAB_BLOCKS])


def _check(what: str, ids: Iterable[int], allowed: range) -> None:
    for number in ids:
        if number not in allowed:
            raise ValueError(f"{what} {number} is outside {allowed.start}..{allowed.stop - 1}")


def _check_targets(copies: Sequence[BlockCopy]) -> None:
    if len({copy.target for copy in copies}) < len(copies):
        raise ValueError(f"two copies have one target: {copies}")
