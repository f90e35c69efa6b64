"""How a native op is called: at once, or as a part of a step.

An op is its function's address and 64-bit words. The ops of a step are gathered on a tape, and one call runs them all,
in one parallel region; a step that is recorded keeps its tape, and all that is left of it in Python is to fill in its
numbers.
"""

from __future__ import annotations

import ctypes
import struct
from array import array
from collections.abc import Callable

import torch

from lorikeet_engine.ops.native.scratch import Allocator, Scratch

Run = Callable[[int, int], None]


def word_of(value: float) -> int:
    """The 64 bits of a float argument."""
    (word,) = struct.unpack("q", struct.pack("d", value))
    return int(word)


def call(run: Run, function: int, words: tuple[int, ...]) -> None:
    """Run one op at once."""
    ops = array("q", (function, len(words), *words))
    run(ops.buffer_info()[0], 1)


class Tape:
    """The ops of one step while they are gathered, and what runs them afterwards."""

    def __init__(self, run: Run, scratch: Scratch) -> None:
        self._run = run
        self._allocator = Allocator(scratch)
        self._ops = array("q")
        self._n_ops = 0
        self._held: list[torch.Tensor] = []

    def append(self, function: int, words: tuple[int, ...]) -> None:
        self._ops.extend((function, len(words), *words))
        self._n_ops += 1

    def hold(self, tensor: torch.Tensor) -> None:
        """Keep what an op reads by address and nobody else keeps until it has run."""
        self._held.append(tensor)

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """An op's output."""
        return self._allocator.empty(shape, dtype)

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
