"""Static batching wastes what the formulas say, and continuous batching does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lorikeet_engine.cost import ModelCost
from lorikeet_engine.simulation.assembly import run_in_static_batches
from lorikeet_engine.simulation.report.summary import summarise_static
from lorikeet_engine.simulation.shipped import load_device, load_model
from lorikeet_engine.simulation.static_batching import Job, run_static
from lorikeet_engine.simulation.workload.distributions import Arrivals
from tests.support.simulated import simulated, tenants, workload

COST, DEVICE = ModelCost.of(load_model("qwen2.5-7b")), load_device("rtx4090")


def test_o4_a_batch_runs_until_its_longest_answer_is_complete() -> None:
    run = run_static([Job(10, 3), Job(10, 11)], 2, COST, DEVICE)
    assert run.n_steps == 10  # the first token comes with the prefill
    assert run.row_steps == 20
    assert run.useful_row_steps == 2 + 10
    assert run.output_tokens == 14


def test_o4_prompts_are_padded_to_the_longest() -> None:
    run = run_static([Job(10, 2), Job(90, 2)], 2, COST, DEVICE)
    assert run.prompt_tokens == 100
    assert run.padded_tokens == 180
    assert run.padding_share == pytest.approx(80 / 180)


def test_o4_nobody_leaves_before_the_batch() -> None:
    run = run_static([Job(10, 2), Job(10, 100)], 2, COST, DEVICE)
    assert run.e2e[0] == run.e2e[1] == run.seconds
    assert 0.9 * run.seconds < run.blocked_s < run.seconds


def test_the_next_batch_waits_for_this_one() -> None:
    jobs = [Job(10, 5), Job(10, 50), Job(10, 5), Job(10, 5)]
    run, first = run_static(jobs, 2, COST, DEVICE), run_static(jobs[:2], 2, COST, DEVICE)
    assert min(run.e2e[2:]) > first.seconds


def test_a_batch_starts_when_its_last_request_has_come() -> None:
    run = run_static([Job(10, 2), Job(10, 2, at=7.0)], 2, COST, DEVICE)
    assert run.seconds > 7.0
    assert run.e2e[0] > 7.0 > run.e2e[1]


def test_o4_one_long_answer_keeps_a_batch_of_32_half_its_time_for_itself() -> None:
    """Mean 200, at most 2000: in the second half one or two rows still produce."""
    jobs = [Job(512, 142) for _ in range(31)] + [Job(512, 2000)]
    run = run_static(jobs, 32, COST, DEVICE)
    assert run.half_time_live == [1]
    assert run.mean_effective_batch == pytest.approx(32 * 200 / 2000, rel=0.02)


def test_o4_with_answers_under_16_tokens_the_fixed_cost_of_a_step_rules() -> None:
    """Twice the batch costs hardly more, since weights are read and launches paid either way."""
    short = [Job(32, n) for n in (4, 8, 12, 15)]
    free = replace(DEVICE, step_overhead_s=0.0)
    small, large = run_static(short, 4, COST, DEVICE), run_static(short * 2, 8, COST, DEVICE)
    assert large.seconds < 1.15 * small.seconds
    assert small.seconds - run_static(short, 4, COST, free).seconds == pytest.approx(15 * DEVICE.step_overhead_s)


def test_o4_long_and_short_answers_mixed_waste_more_than_equal_ones() -> None:
    """Both sides have 32 rows and 4096 tokens to make."""
    mixed = run_static([Job(64, 16 if i % 2 else 240) for i in range(32)], 32, COST, DEVICE)
    equal = run_static([Job(64, 128)] * 32, 32, COST, DEVICE)
    assert mixed.output_tokens == equal.output_tokens == 4096
    assert equal.efficiency == 1
    assert mixed.efficiency == pytest.approx(127 / 239)
    assert mixed.seconds > 1.7 * equal.seconds


def test_o4_the_effective_batch_over_time_only_falls_within_a_batch() -> None:
    run = run_static([Job(64, 10 * i) for i in range(1, 17)], 16, COST, DEVICE)
    rows = [live for _, live in run.live]
    assert rows[0] == 16
    assert rows == sorted(rows, reverse=True)
    assert rows[-1] == 0


def test_any_workload_can_be_served_in_static_batches_to_compare() -> None:
    described = workload(tenants("t", arrivals=Arrivals(kind="closed", concurrency=8)), n_requests=64)
    run = run_in_static_batches(described, 16)
    values = summarise_static(run, 16)
    assert len(run.e2e) == 64
    assert run.seconds > simulated(described).clock.now
    assert 0 < values["effective_batch"] < 16
    assert 0 < values["padding_share"] < 1
