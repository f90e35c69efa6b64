"""Three queues of device work, and marks in them that the host or another queue can wait for.

A device carries out a lane's work in order and different lanes' at once. On CUDA a lane is a stream and a mark an
event; where the host computes itself (`HostLanes`) all work is done when it is handed over. What must be ordered
between lanes is decided by who hands the work over, with `wait`; nothing here knows what the work is.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol

import torch


class Lane(Enum):
    """COMPUTE carries out the steps, LOAD brings adapters in, SWAP carries KV blocks to host memory and back."""

    COMPUTE = "compute"
    LOAD = "load"
    SWAP = "swap"


class Mark(Protocol):
    """A place in a lane."""

    def is_passed(self) -> bool:
        """Whether all work before it is done; never waits."""
        ...

    def wait(self) -> None:
        """Hold the host until it is."""
        ...


class Lanes(Protocol):
    """The queues of one device; for one thread."""

    is_asynchronous: bool

    def run(self, lane: Lane, work: Callable[[], object]) -> None:
        """Append work; it may be carried out any time from now on."""
        ...

    def mark(self, lane: Lane) -> Mark:
        """Mark the lane's end as it is now."""
        ...

    def wait(self, lane: Lane, mark: Mark) -> None:
        """Let what is appended to the lane from now on begin only after the mark."""
        ...


class PassedMark:
    """Where nothing is ever under way."""

    def is_passed(self) -> bool:
        return True

    def wait(self) -> None:
        return


PASSED = PassedMark()


class HostLanes:
    """The host is the device."""

    is_asynchronous = False

    def run(self, lane: Lane, work: Callable[[], object]) -> None:
        del lane
        work()

    def mark(self, lane: Lane) -> Mark:
        del lane
        return PASSED

    def wait(self, lane: Lane, mark: Mark) -> None:
        del lane, mark


class CudaMark:
    """A recorded event; `event` is for `CudaLanes` alone."""

    def __init__(self, event: torch.cuda.Event) -> None:
        self.event = event

    def is_passed(self) -> bool:
        return bool(self.event.query())  # type: ignore[no-untyped-call]

    def wait(self) -> None:
        self.event.synchronize()


class CudaLanes:
    """Streams of the current CUDA device; steps run on the stream that was current when this was made."""

    is_asynchronous = True

    def __init__(self) -> None:
        self._streams = {
            Lane.COMPUTE: torch.cuda.current_stream(),
            Lane.LOAD: torch.cuda.Stream(),  # type: ignore[no-untyped-call]
            Lane.SWAP: torch.cuda.Stream(),  # type: ignore[no-untyped-call]
        }

    def run(self, lane: Lane, work: Callable[[], object]) -> None:
        with torch.cuda.stream(self._streams[lane]):
            work()

    def mark(self, lane: Lane) -> Mark:
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(self._streams[lane])
        return CudaMark(event)

    def wait(self, lane: Lane, mark: Mark) -> None:
        if isinstance(mark, CudaMark):
            self._streams[lane].wait_event(mark.event)
