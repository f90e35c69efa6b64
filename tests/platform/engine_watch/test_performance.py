"""Both machines of an engine in figures: rates by kind of step, latencies from histograms, and what prompts lose."""

from __future__ import annotations

import random

import pytest

from lorikeet_engine.cost import DeviceProfile, StepShape, ridge, roofline_seconds, step_work
from lorikeet_engine.cost_vector import CostVector
from lorikeet_engine.stats import BOUNDS_S, WorkDone
from lorikeet_platform.engine_watch.latency import quantile, spread_of
from lorikeet_platform.engine_watch.performance import interference, performance
from lorikeet_platform.engine_watch.window import Window
from tests.support.engine_figures import engine_design
from tests.support.seen_engine import KNOBS, a_step, a_window, prefix, times, work

RTX4090 = DeviceProfile(
    name="rtx4090",
    peak_flops=165.2e12,
    peak_bandwidth=1008e9,
    memory_bytes=24 << 30,
    host_bandwidth=2e10,
    disk_bandwidth=1e9,
    mfu_prefill=0.8,
    mbu=0.9,
    step_overhead_s=0.001,
)
DESIGN = engine_design(knobs=dict(KNOBS), device=RTX4090)


def busy(seed: int) -> Window:
    """A window of a made-up engine that ran steps of every kind."""
    draw = random.Random(seed)
    kinds = ("prefill", "decode", "mixed")
    done, seconds, steps = {}, {}, {}
    for kind in kinds:
        steps[kind], seconds[kind] = draw.randrange(1, 500), draw.uniform(0.1, 30)
        done[kind] = WorkDone(
            flops=draw.uniform(1e9, 1e15),
            lora_flops=0.0,
            read_bytes=draw.uniform(1e9, 1e13),
            write_bytes=16.0 * draw.randrange(1, 10_000),
            lora_bytes=0.0,
        )
    after = {
        "steps_total": sum(steps.values()),
        "steps_by_kind": steps,
        "step_seconds_by_kind": seconds,
        "work_by_kind": done,
        "generated_tokens_total": 700,
        "kv_peak_bytes": 4096,
    }
    return a_window(after)


@pytest.mark.parametrize("seed", range(5))
def test_o1_11_in_every_window_mfu_over_mbu_is_intensity_over_ridge(seed: int) -> None:
    shown = performance(busy(seed), DESIGN)
    assert [phase.kind for phase in shown.phases] == ["prefill", "decode", "mixed"]
    for phase in shown.phases:
        assert phase.mfu / phase.mbu == pytest.approx(phase.intensity / shown.ridge)
    assert shown.ridge == pytest.approx(ridge(RTX4090)) == pytest.approx(163.9, abs=0.05)


def test_rates_are_of_the_time_that_a_kind_of_step_took() -> None:
    after = {
        "steps_total": 10,
        "steps_by_kind": {"decode": 10},
        "step_seconds_by_kind": {"decode": 2.0},
        "work_by_kind": {"decode": work(read_bytes=822.5e9 * 2, flops=23.5e12 * 2, write_bytes=16 * 160)},
    }
    shown = performance(a_window(after, seconds=8.0), DESIGN)
    [decode] = shown.phases
    assert (decode.steps, decode.tokens, decode.share) == (10, 160, 0.25)
    assert decode.mfu == pytest.approx(0.142, abs=0.0005)  # as published for L = 256
    assert decode.mbu == pytest.approx(0.816, abs=0.0005)
    assert shown.mfu == pytest.approx(decode.mfu / 4)  # the engine was idle for three quarters
    assert shown.tokens_per_step == 16
    assert shown.read_bytes_per_token == pytest.approx(822.5e9 * 2 / 160)


def test_what_was_computed_again_is_in_hfu_and_not_in_mfu() -> None:
    after = {
        "steps_by_kind": {"mixed": 1},
        "work_by_kind": {"mixed": work(flops=1e12)},
        "costs": CostVector(wasted_flops=25e10),
    }
    shown = performance(a_window(after), DESIGN)
    assert shown.mfu == pytest.approx(0.75 * shown.hfu)
    assert shown.hfu > 0


def test_a_window_without_steps_has_no_phases_and_no_rates() -> None:
    shown = performance(a_window({}), DESIGN)
    assert (shown.phases, shown.latency, shown.read_bytes_per_token, shown.interference) == ([], [], None, None)
    assert (shown.mfu, shown.tokens_per_step) == (0.0, 0.0)


def test_the_timeline_has_what_happened_between_two_samples() -> None:
    moments = [{"generated_tokens_total": n, "running": n // 100} for n in (0, 300, 300, 900)]
    shown = performance(a_window(moments[-1], before=moments[0], between=moments[1:-1], seconds=15.0), DESIGN)
    assert [(moment.at, moment.tokens_per_s, moment.running) for moment in shown.timeline] == [
        (1005, 60.0, 3),
        (1010, 0.0, 3),
        (1015, 120.0, 9),
    ]


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_quantiles_are_right_to_the_width_of_a_bin(share: float) -> None:
    draw = random.Random(3)
    values = sorted(draw.lognormvariate(-3, 1.2) for _ in range(5000))
    spread = spread_of(a_window({"histograms": [times("ttft", values)]}), "ttft")
    true = values[int(share * len(values))]
    low = max((bound for bound in (0.0, *BOUNDS_S) if bound <= true), default=0.0)
    high = min(bound for bound in BOUNDS_S if bound >= true)
    assert abs(quantile(spread, share) - true) <= high - low
    assert quantile(spread, 0.5) < quantile(spread, 0.9) < quantile(spread, 0.99)


def test_quantiles_above_the_last_bound_are_that_bound() -> None:
    spread = spread_of(a_window({"histograms": [times("e2e", [500.0])]}), "e2e")
    assert quantile(spread, 0.5) == BOUNDS_S[-1]


def test_latencies_are_those_of_the_window_by_kind_and_together() -> None:
    old = [times("ttft", [9.0] * 4), times("ttft", [8.0], label="adapter")]
    new = [times("ttft", [9.0] * 4 + [0.1] * 6), times("ttft", [8.0, 0.2], label="adapter")]
    tenants = [times("ttft", [9.0] * 99, by="tenant", label="anna")]
    shown = performance(a_window({"histograms": new + tenants}, before={"histograms": old}), DESIGN)
    found = {latency.kind: latency for latency in shown.latency}
    assert {kind: latency.count for kind, latency in found.items()} == {"base": 6, "adapter": 1, "all": 7}
    assert found["base"].mean == pytest.approx(0.1)
    assert found["all"].p99 < 0.25


def test_interference_is_how_much_longer_prompts_take_than_alone() -> None:
    """Steps as the device's roofline has them; prompts that take 3.9 times what one of them would alone."""
    design = engine_design(knobs={**KNOBS, "max_num_batched_tokens": 64})
    alone, steps = StepShape(), []
    alone.add_prefill(48, 0, samples=True)
    alone_s = roofline_seconds(design.cost, design.device, alone)
    for n_decode in (0, 2, 4, 8, 0, 1):
        shape = StepShape()
        for _ in range(n_decode):
            shape.add_decode(50)
        shape.add_prefill(48, 0, samples=True)
        steps += [
            a_step(
                kind="mixed",
                seconds=roofline_seconds(design.cost, design.device, shape),
                n_decode=n_decode,
                decode_context=shape.decode_context,
                n_prefill=48,
                prefill_pairs=shape.prefill_pairs,
                n_sampled=shape.n_sampled,
            )
        ] * 30
    after = {
        "prompt_tokens_total": 48 * 180,
        "prefix": prefix(48 * 180),
        "histograms": [times("prefill", [3.9 * alone_s] * 180)],
    }
    assert interference(a_window(after, steps=steps), design) == pytest.approx(3.9, rel=0.1)


def test_the_work_of_a_window_is_what_its_steps_amount_to() -> None:
    shape = StepShape()
    shape.add_prefill(10, 0, samples=True)
    amounts = step_work(DESIGN.cost, shape)
    done = work(read_bytes=amounts.read_bytes, flops=amounts.flops, write_bytes=amounts.write_bytes)
    window = a_window({"work_by_kind": {"prefill": done}, "steps_by_kind": {"prefill": 1}})
    [phase] = performance(window, DESIGN).phases
    assert (phase.tokens, phase.intensity) == (10, amounts.flops / amounts.read_bytes)
