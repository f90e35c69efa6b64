"""Steps, adapters on their way and blocks on theirs, as a runner is told of them; the answer is the tokens it gave.

A device that does things in another order than it was told gives other tokens than one that computes at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from lorikeet_engine.execution.runner import ModelRunner
from lorikeet_engine.scheduling.plan import BlockCopy, SamplingParams, StepPlan
from tests.support.device import BASE, Driven, plan_of, random_ids

PLACE = 5000
N_IDS = 128  # of the vocabulary, which is at least so large
WARM = SamplingParams(temperature=0.9, top_k=40, top_p=0.95, seed=11)


class Image(Protocol):
    @property
    def extent(self) -> torch.Tensor: ...
    @property
    def n_grains(self) -> int: ...


def a_request(name: str, first_block: int, extent: int = BASE, sampling: SamplingParams = WARM) -> Driven:
    tokens = random_ids(11, vocab=N_IDS, seed=first_block)
    return Driven(name, tokens, tuple(range(first_block, first_block + 4)), extent=extent, sampling=sampling)


def step(
    runner: ModelRunner,
    *requests: Driven,
    swap_outs: tuple[BlockCopy, ...] = (),
    swap_ins: tuple[BlockCopy, ...] = (),
    copies: tuple[BlockCopy, ...] = (),
) -> None:
    """Launch a step of these requests; what it copies goes before."""
    rows = plan_of([request.row() for request in requests]).rows
    runner.launch(StepPlan(1, rows, swap_outs=swap_outs, swap_ins=swap_ins, copies=copies))


def collect(runner: ModelRunner, *requests: Driven) -> list[int]:
    sampled = runner.collect().sampled
    for request in requests:
        request.generated.append(sampled[request.name])
    return [sampled[request.name] for request in requests]


def decode(runner: ModelRunner, n_steps: int, *requests: Driven) -> list[list[int]]:
    found = []
    for _ in range(n_steps):
        step(runner, *requests)
        found.append(collect(runner, *requests))
    return found


def with_arrivals_and_moves(runner: ModelRunner, images: Sequence[Image]) -> list[list[int]]:
    """An adapter arrives, another takes its grains while its last step is under way, and is moved when it has come."""
    first, base = a_request("first", 1, PLACE), a_request("base", 5, sampling=SamplingParams())
    runner.write_extent(PLACE, images[0])
    found = decode(runner, 3, first, base)
    step(runner, first, base)
    runner.write_extent(PLACE + 7, images[1])
    found.append(collect(runner, first, base))
    runner.move_extent(PLACE + 7, 2, images[1].n_grains)
    second = a_request("second", 9, 2)
    found += decode(runner, 3, second, base)
    runner.write_extent(PLACE, images[0])
    third = a_request("third", 13, PLACE)
    return [*found, *decode(runner, 2, second, third, base)]


def with_swaps(runner: ModelRunner) -> list[list[int]]:
    """A request leaves, another takes its blocks in the same step, and it comes back to other blocks."""
    left, stays = a_request("left", 1), a_request("stays", 5)
    found = decode(runner, 3, left, stays)
    outs = tuple(BlockCopy(block, slot) for slot, block in enumerate(left.blocks))
    taker = a_request("taker", 1)
    step(runner, taker, stays, swap_outs=outs)
    found.append(collect(runner, taker, stays))
    found += decode(runner, 2, taker, stays)
    left.blocks = tuple(range(20, 24))
    ins = tuple(BlockCopy(slot, block) for slot, block in enumerate(left.blocks))
    step(runner, taker, left, swap_ins=ins)
    found.append(collect(runner, taker, left))
    fork = Driven("fork", left.tokens, (*left.blocks[:1], 30, 31, 32), sampling=WARM, generated=[*left.generated])
    fork.computed = left.computed
    copies = tuple(BlockCopy(source, target) for source, target in zip(left.blocks[1:], fork.blocks[1:], strict=True))
    step(runner, fork, left, copies=copies)
    found.append(collect(runner, fork, left))
    return [*found, *decode(runner, 2, fork, left, stays)]
