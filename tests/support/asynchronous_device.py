"""A device that works beside the host, on CPU tensors: lanes whose work is carried out late, in any order allowed.

What is handed over is kept until the host waits for a mark, and a random part of it is carried out whenever something
is handed over. Whoever forgets a fence reads or overwrites bytes at the wrong time, for some seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from lorikeet_engine.execution.streams.lanes import Lane, Mark


@dataclass(eq=False)
class LateMark:
    """Passed when the device came by; waiting makes it come by."""

    device: LateLanes
    passed: bool = False

    def is_passed(self) -> bool:
        return self.passed

    def wait(self) -> None:
        while not self.passed:
            self.device.carry_out_something()


@dataclass
class LateLanes:
    """Implements `Lanes`. `eagerness` is how likely a piece of work is carried out at any call."""

    seed: int
    eagerness: float = 0.3
    is_asynchronous: bool = True
    waited: list[tuple[Lane, Mark]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._queues: dict[Lane, list[Callable[[], object] | LateMark | tuple[LateMark]]] = {lane: [] for lane in Lane}

    def run(self, lane: Lane, work: Callable[[], object]) -> None:
        self._queues[lane].append(work)
        self._drift()

    def mark(self, lane: Lane) -> Mark:
        mark = LateMark(self)
        self._queues[lane].append(mark)
        return mark

    def wait(self, lane: Lane, mark: Mark) -> None:
        self.waited.append((lane, mark))
        if isinstance(mark, LateMark):
            self._queues[lane].append((mark,))

    def carry_out_something(self) -> None:
        """The next piece of one of the lanes that can go on."""
        ready = [queue for queue in self._queues.values() if queue and self._can_go_on(queue[0])]
        if not ready:
            raise AssertionError("the lanes wait for each other")
        item = self._random.choice(ready).pop(0)
        if isinstance(item, LateMark):
            item.passed = True
        elif not isinstance(item, tuple):
            item()

    @property
    def is_busy(self) -> bool:
        return any(self._queues.values())

    def finish(self) -> None:
        while any(self._queues.values()):
            self.carry_out_something()

    def _can_go_on(self, item: object) -> bool:
        return item[0].passed if isinstance(item, tuple) else True

    def _drift(self) -> None:
        while any(self._queues.values()) and self._random.random() < self.eagerness:
            self.carry_out_something()
