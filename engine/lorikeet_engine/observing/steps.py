"""The steps of the recent past, one by one, and how long each kind of them takes."""

from __future__ import annotations

from collections import deque
from heapq import merge
from typing import NamedTuple

from lorikeet_engine.observing.histogram import Histogram

KEPT = 2000  # of each kind: many short decode steps do not push out the few that computed prompts


class StepRecord(NamedTuple):
    """One step that ran; the fields of `stats.StepSample`."""

    end_s: float
    kind: str
    seconds: float
    n_decode: int
    decode_context: int
    n_prefill: int
    prefill_pairs: int
    prefill_context: int
    n_sampled: int
    lora_bytes: int
    lora_flops: int
    running: int
    waiting: int
    kv_used_bytes: int


class StepBook:
    """Keeps the newest steps of each of `kinds`."""

    def __init__(self, kinds: tuple[str, ...]) -> None:
        self.by_kind = {kind: Histogram() for kind in kinds}
        self._kept: dict[str, deque[StepRecord]] = {kind: deque(maxlen=KEPT) for kind in kinds}

    def add(self, step: StepRecord) -> None:
        self.by_kind[step.kind].add(step.seconds)
        self._kept[step.kind].append(step)

    def after(self, after_s: float) -> list[StepRecord]:
        """The kept steps that ended after then, oldest first."""
        return list(merge(*(_newest(kept, after_s) for kept in self._kept.values())))


def _newest(kept: deque[StepRecord], after_s: float) -> list[StepRecord]:
    newest = []
    for step in reversed(kept):
        if step.end_s <= after_s:
            break
        newest.append(step)
    return newest[::-1]
