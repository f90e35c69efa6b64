"""Blocks that a plan swaps out, swaps in and copies: their bytes, and what a request computes from them.

Tolerance as in test_model_equality; where only copies differ, the logits must be equal to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from lorikeet_engine.execution.runner import ModelRunner
from lorikeet_engine.models.inputs import KvLayer
from lorikeet_engine.scheduling.plan import BlockCopy, PlanRow, StepPlan
from tests.support.closeness import relative_error
from tests.support.device import Driven, open_runner, plan_of, random_ids
from tests.support.tiny_models import VOCAB, load_oracle, oracle_logits

TOLERANCE = 1e-5
ModelDir = Callable[[str], Path]
Pages = list[tuple[torch.Tensor, torch.Tensor]]


@pytest.fixture(params=["float32", "bfloat16"])
def runner(model_dir: ModelDir, request: pytest.FixtureRequest) -> ModelRunner:
    runner = open_runner(model_dir("llama"), dtype=request.param, n_host_slots=6)
    fill_with_noise(runner)
    return runner


def fill_with_noise(runner: ModelRunner) -> None:
    generator = torch.Generator().manual_seed(1)
    for pages in runner.kv.layers:
        for tensor in (pages.k, pages.v):
            tensor[1:] = torch.randn(tensor[1:].shape, generator=generator).to(tensor.dtype)


def pages_of(layers: tuple[KvLayer, ...], ids: list[int]) -> Pages:
    """A copy of some blocks, of every layer."""
    return [(layer.k[ids].clone(), layer.v[ids].clone()) for layer in layers]


def equal(left: Pages, right: Pages) -> bool:
    return all(
        torch.equal(a, b) for one, other in zip(left, right, strict=True) for a, b in zip(one, other, strict=True)
    )


def copies(*pairs: tuple[int, int]) -> tuple[BlockCopy, ...]:
    return tuple(BlockCopy(*pair) for pair in pairs)


def drive(runner: ModelRunner, request: Driven) -> torch.Tensor:
    """Compute what is left of a request and return its logits."""
    return runner.logits(plan_of([request.row()]))[0]


def test_a_round_trip_through_host_memory_keeps_every_byte_of_every_layer(runner: ModelRunner) -> None:
    before = pages_of(runner.kv.layers, [9, 3, 60])
    runner.execute(StepPlan(1, (), swap_outs=copies((9, 5), (3, 0), (60, 2))))
    assert equal(pages_of(runner.kv.host_layers, [5, 0, 2]), before)
    for pages in runner.kv.layers:
        pages.k[1:].fill_(float("nan"))
        pages.v[1:].fill_(float("nan"))
    runner.execute(StepPlan(2, (), swap_ins=copies((0, 40), (2, 1), (5, 63))))
    assert equal(pages_of(runner.kv.layers, [63, 40, 1]), before)


def test_blocks_and_slots_that_no_copy_names_stay_as_they_are(runner: ModelRunner) -> None:
    runner.execute(StepPlan(1, (), swap_outs=copies((1, 1), (2, 2))))
    others = [block for block in range(64) if block not in (7, 8)]
    device, host = pages_of(runner.kv.layers, others), pages_of(runner.kv.host_layers, [0, 1, 3, 4, 5])
    runner.execute(StepPlan(2, (), swap_outs=copies((6, 2)), swap_ins=copies((1, 7)), copies=copies((5, 8))))
    assert equal(pages_of(runner.kv.layers, others), device)
    assert equal(pages_of(runner.kv.host_layers, [0, 1, 3, 4, 5]), host)


def test_block_zero_stays_zero(runner: ModelRunner) -> None:
    for plan in (StepPlan(1, (), copies=copies((1, 0))), StepPlan(2, (), swap_ins=copies((0, 0)))):
        with pytest.raises(ValueError, match="device block 0 is outside"):
            runner.execute(plan)
    assert all(not pages.k[0].any() and not pages.v[0].any() for pages in runner.kv.layers)


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (StepPlan(1, (), swap_outs=copies((1, 6))), "host slot 6"),
        (StepPlan(1, (), swap_outs=copies((64, 0))), "device block 64"),
        (StepPlan(1, (), swap_ins=copies((-1, 1))), "host slot -1"),
        (StepPlan(1, (), copies=copies((1, 2), (3, 2))), "one target"),
    ],
)
def test_a_copy_outside_the_pools_is_refused(runner: ModelRunner, plan: StepPlan, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        runner.execute(plan)


def test_the_parts_of_a_plan_are_carried_out_in_their_order(runner: ModelRunner) -> None:
    """Block 1 leaves, a swapped block takes its place, a fork copies that, and the host slot holds the old bytes."""
    old, incoming = pages_of(runner.kv.layers, [1]), pages_of(runner.kv.layers, [2])
    runner.execute(StepPlan(1, (), swap_outs=copies((2, 0))))
    plan = StepPlan(2, (), swap_outs=copies((1, 1)), swap_ins=copies((0, 1)), copies=copies((1, 3)))
    runner.execute(plan)
    assert equal(pages_of(runner.kv.host_layers, [1]), old)
    assert equal(pages_of(runner.kv.layers, [1]), incoming)
    assert equal(pages_of(runner.kv.layers, [3]), incoming)


def test_a_plan_with_copies_only_computes_nothing_and_takes_time(runner: ModelRunner) -> None:
    result = runner.execute(StepPlan(4, (), copies=copies((1, 2))))
    assert (result.step_id, result.sampled) == (4, {})
    assert result.seconds > 0


def test_a_step_says_how_long_it_took(runner: ModelRunner) -> None:
    request = Driven("r", random_ids(12, vocab=VOCAB, seed=3), (1, 2))
    assert 0 < runner.execute(plan_of([request.row()])).seconds < 60


@pytest.mark.parametrize("n_prompt", [15, 16, 17])
def test_a_request_that_was_swapped_out_goes_on_with_equal_logits(model_dir: ModelDir, n_prompt: int) -> None:
    """Other requests overwrite its blocks meanwhile; it comes back to other blocks than it left."""
    runner, oracle = open_runner(model_dir("llama"), n_host_slots=4), load_oracle(model_dir("llama"))
    tokens = random_ids(n_prompt + 1, vocab=VOCAB, seed=n_prompt)
    stays, leaves = (Driven(name, tokens[:n_prompt], blocks) for name, blocks in (("s", (1, 2, 3)), ("l", (4, 5, 6))))
    for request in (stays, leaves):
        drive(runner, request)
        request.generated.append(tokens[n_prompt])
    used = -(-n_prompt // 8)
    runner.execute(StepPlan(1, (), swap_outs=copies((4, 3), (5, 0), (6, 2))[:used]))
    drive(runner, Driven("other", random_ids(24, vocab=VOCAB, seed=9), (4, 5, 6)))
    leaves.blocks = (20, 4, 11)
    row = leaves.row()
    back = StepPlan(2, (row,), swap_ins=copies((3, 20), (0, 4), (2, 11))[:used])
    runner.execute(back)
    again = runner.logits(StepPlan(3, (row,)))[0]
    assert torch.equal(again, drive(runner, stays))
    assert relative_error(again, oracle_logits(oracle, tokens)[-1]) <= TOLERANCE


def test_forks_of_a_partial_tail_do_not_see_each_others_tokens(model_dir: ModelDir) -> None:
    """Three sequences of one prompt share its full block and have the tail for themselves."""
    runner, oracle = open_runner(model_dir("qwen3")), load_oracle(model_dir("qwen3"))
    prompt = random_ids(13, vocab=VOCAB, seed=13)
    parent = Driven("parent", prompt, (1, 2))
    drive(runner, parent)
    forks = [parent, *(Driven(f"fork {block}", prompt, (1, block), computed=13) for block in (30, 31))]
    rows: list[PlanRow] = []
    for token, request in enumerate(forks, start=40):
        request.generated.append(token)
        rows.append(request.row())
    step = StepPlan(2, plan_of(rows).rows, copies=copies((2, 30), (2, 31)))
    runner.execute(step)
    for request in forks:
        request.generated.append(7)
    found = runner.logits(plan_of([request.row() for request in forks]))
    for logits, request in zip(found, forks, strict=True):
        expected = oracle_logits(oracle, prompt + request.generated)[-1]
        assert relative_error(logits, expected) <= TOLERANCE, request.name
