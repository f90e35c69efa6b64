"""What a runner is put together from on one kind of device: where its tensors are and how work reaches them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from lorikeet_engine.execution.kv_cache import BlockMover, TorchMover
from lorikeet_engine.execution.sampling.token_choice import DeviceChoice, HostChoice, TokenChoice
from lorikeet_engine.execution.staging import IN_PLACE, WordFeed
from lorikeet_engine.execution.streams.lanes import HostLanes, Lanes
from lorikeet_engine.execution.streams.words import PinnedFeed
from lorikeet_engine.ops.interface import Ops
from lorikeet_engine.sizing.step_memory import few_numbers

MOST_KEPT = 64  # rows of a recorded step on a CPU: of a larger one the host's part is small anyhow


@dataclass(frozen=True, slots=True)
class Placement:
    """
    Attributes:
        mover: made for the page tensors.
        token_choice: made for the backend and the most rows of a step.
        recorded_rows: of the most rows of a step, the numbers of rows that are recorded.
    """

    device: str
    lanes: Lanes
    feed: WordFeed
    mover: Callable[[Sequence[torch.Tensor]], BlockMover]
    token_choice: Callable[[Ops, int], TokenChoice]
    recorded_rows: Callable[[int], Sequence[int]]


def every_number(max_rows: int) -> Sequence[int]:
    """Up to as many rows as make it worth while: each number keeps a buffer of its own."""
    return range(1, min(max_rows, MOST_KEPT) + 1)


def beside_the_host(
    device: str, lanes: Lanes, mover: Callable[[Sequence[torch.Tensor]], BlockMover] = TorchMover
) -> Placement:
    """A device that works while the host goes on."""
    choice = partial(DeviceChoice, device=device)
    return Placement(device, lanes, PinnedFeed(lanes, device), mover, choice, few_numbers)


ON_HOST = Placement("cpu", HostLanes(), IN_PLACE, TorchMover, HostChoice, every_number)
