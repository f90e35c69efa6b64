"""Memory that the tensors of a step share: each piece is used again as soon as the tensor on it is gone.

A region of address space is reserved once and never moves, so a recorded step may keep its addresses; what is not used
of it is no memory. All tapes begin at its front, since only one runs at a time: it holds as much as the largest step.
"""

from __future__ import annotations

import mmap
import weakref
from bisect import insort

import numpy as np
import torch

ALIGNMENT = 64  # bytes: a vector
RESERVED_BYTES = 1 << 34
MAP_NORESERVE = 0x4000  # Linux; Python names it from 3.13 on


class Scratch:
    """The region, as bytes."""

    def __init__(self, n_bytes: int = RESERVED_BYTES) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
        self.memory = np.frombuffer(mmap.mmap(-1, n_bytes, flags=flags), dtype=np.uint8)


class Allocator:
    """Pieces of the region for one step, by first fit."""

    def __init__(self, scratch: Scratch) -> None:
        self._memory = scratch.memory
        self._free: list[tuple[int, int]] = [(0, len(self._memory))]  # (begin, end), ascending and apart

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """A tensor of any numbers.

        Raises:
            MemoryError: the region is full.
        """
        n_elements = torch.Size(shape).numel()
        begin, end = self._take(max(1, n_elements * dtype.itemsize))
        view = self._memory[begin:end]
        # The tensor's storage holds this view, whatever views there are of the tensor, and goes with the last of them.
        weakref.finalize(view, self._give_back, begin, end).atexit = False
        return torch.from_numpy(view).view(dtype)[:n_elements].view(shape)

    def _take(self, n_bytes: int) -> tuple[int, int]:
        n_bytes = -(-n_bytes // ALIGNMENT) * ALIGNMENT
        for index, (begin, end) in enumerate(self._free):
            if end - begin >= n_bytes:
                self._free[index : index + 1] = [(begin + n_bytes, end)] if end - begin > n_bytes else []
                return begin, begin + n_bytes
        raise MemoryError(f"a step needs more than the {len(self._memory) >> 30} GiB reserved for its activations")

    def _give_back(self, begin: int, end: int) -> None:
        insort(self._free, (begin, end))
        index = self._free.index((begin, end))
        if index + 1 < len(self._free) and self._free[index + 1][0] == end:
            self._free[index : index + 2] = [(begin, self._free[index + 1][1])]
        if index and self._free[index - 1][1] == begin:
            self._free[index - 1 : index + 1] = [(self._free[index - 1][0], self._free[index][1])]
