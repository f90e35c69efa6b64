"""How a native op is called, now or later, and where its output lies.

An op is its function's address and 64-bit words. A step that is recorded keeps its ops on a tape, which one call runs
from then on: what is left of a step in Python is to fill in its numbers. Outputs of a recorded step lie in a scratch
that all tapes share, since only one runs at a time; a piece of it is used again when the tensor on it is gone.
"""

from __future__ import annotations

import ctypes
import struct
import weakref
from array import array
from collections import defaultdict
from collections.abc import Callable

import numpy as np
import torch

ALIGNMENT = 64  # bytes
CHUNK_BYTES = 1 << 20

Run = Callable[[int, int], None]


def word_of(value: float) -> int:
    """The 64 bits of a float argument."""
    (word,) = struct.unpack("q", struct.pack("d", value))
    return int(word)


def call(run: Run, function: int, words: tuple[int, ...]) -> None:
    """Run one op at once."""
    ops = array("q", (function, len(words), *words))
    run(ops.buffer_info()[0], 1)


class Scratch:
    """Memory of recorded outputs; grows to what the largest step holds at a time, and stays."""

    def __init__(self) -> None:
        self._chunks: list[np.ndarray] = []

    def chunk(self, index: int, n_bytes: int) -> np.ndarray:
        """The chunk of that number if it is large enough, or a new one at the end."""
        for chunk in self._chunks[index:]:
            if chunk.nbytes >= n_bytes:
                return chunk
        self._chunks.append(np.empty(max(n_bytes, CHUNK_BYTES), dtype=np.uint8))
        return self._chunks[-1]

    def index(self, chunk: np.ndarray) -> int:
        return next(i for i, own in enumerate(self._chunks) if own is chunk)


class Tape:
    """The ops of one step while it is recorded, and the recording afterwards."""

    def __init__(self, run: Run, scratch: Scratch) -> None:
        self._run = run
        self._scratch = scratch
        self._ops = array("q")
        self._n_ops = 0
        self._held: list[torch.Tensor] = []
        self._free: defaultdict[int, list[np.ndarray]] = defaultdict(list)
        self._chunk, self._used = -1, 0

    def append(self, function: int, words: tuple[int, ...]) -> None:
        self._ops.extend((function, len(words), *words))
        self._n_ops += 1

    def hold(self, tensor: torch.Tensor) -> None:
        """Keep what an op reads by address and nobody else keeps until it has run."""
        self._held.append(tensor)

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """An output on the scratch."""
        n_bytes = dtype.itemsize
        for length in shape:
            n_bytes *= length
        n_bytes = -(-max(n_bytes, 1) // ALIGNMENT) * ALIGNMENT
        piece = self._free[n_bytes].pop() if self._free[n_bytes] else self._carve(n_bytes)
        # The tensor's storage holds this view, whatever views there are of the tensor, and goes with the last of them.
        view = piece[:]
        weakref.finalize(view, self._free[n_bytes].append, piece)
        return torch.from_numpy(view).view(dtype)[: torch.Size(shape).numel()].view(shape)

    def _carve(self, n_bytes: int) -> np.ndarray:
        chunk = self._scratch.chunk(max(self._chunk, 0), self._used + n_bytes)
        index = self._scratch.index(chunk)
        if index != self._chunk:
            self._chunk, self._used = index, 0
        piece = chunk[self._used : self._used + n_bytes]
        self._used += n_bytes
        return piece

    def replay(self) -> None:
        self._run(self._ops.buffer_info()[0], self._n_ops)


def run_of(library: ctypes.CDLL) -> Run:
    function = library["run"]
    function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_int64), None
    run: Run = function
    return run


def address_of(library: ctypes.CDLL, name: str) -> int:
    address = ctypes.cast(library[name], ctypes.c_void_p).value
    assert address is not None
    return address
