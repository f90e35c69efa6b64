"""Calibrated plans: what is learned from steps, how far that is trusted, and where it ends."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from lorikeet_engine.cost import StepShape
from lorikeet_engine.stats import EngineDesign, StepSample
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.planning.learning.calibration import Calibrated, calibrate
from lorikeet_platform.planning.learning.pace import Pace
from lorikeet_platform.planning.planner import make_plan, predicted
from lorikeet_platform.planning.prediction import Load
from lorikeet_platform.planning.subject import Subject, running_subject
from tests.platform.planning.conftest import seconds_of, shapes_of, steps_of


@pytest.fixture(scope="module")
def calibrated(steps: list[StepSample]) -> Calibrated:
    return calibrate(steps)


@pytest.fixture(scope="module")
def subject(design: EngineDesign) -> Subject:
    return running_subject("smollm2", design, {}, 512)


def refusal(subject: Subject, calibrated: Calibrated, **load: Any) -> PlatformError:
    with pytest.raises(PlatformError) as caught:
        predicted(subject, Load(**load), calibrated)
    assert caught.value.code == "invalid_value"
    return caught.value


def test_steps_that_were_not_seen_are_timed_as_they_would_have_been(calibrated: Calibrated) -> None:
    for shape in shapes_of(batches=(4, 7), contexts=(96, 256, 400)):
        assert calibrated.step_seconds(shape) == pytest.approx(seconds_of(shape), rel=0.03)


def test_errors_are_those_of_the_noise_in_the_steps(calibrated: Calibrated) -> None:
    low, high = calibrated.error_span
    assert 0.93 < low < 0.97
    assert 1.03 < high < 1.07
    assert 0.015 < calibrated.error_p50 < 0.035
    assert 0.035 < calibrated.error_p90 < 0.065


def test_the_hosts_time_between_steps_is_seen(calibrated: Calibrated) -> None:
    assert calibrated.host_overhead_s == pytest.approx(0.004)


def test_no_coefficient_is_negative_however_the_noise_falls() -> None:
    """Contexts that hardly differ say nothing about them, and must not make longer ones faster."""
    learned = calibrate(steps_of(shapes_of(batches=(1, 2, 4, 8), contexts=(100, 101)), noise=0.3))
    short, long = (
        learned.step_seconds(StepShape(n_decode=4, decode_context=4 * context, n_sampled=4)) for context in (100, 1000)
    )
    assert 0 < short <= long


def test_a_few_very_slow_steps_widen_the_errors_and_leave_the_middle() -> None:
    samples = steps_of(shapes_of(batches=(1, 2, 4, 8), contexts=(64, 256)))
    slow = [made_longer(step, 3.0) if i % 10 == 0 else step for i, step in enumerate(samples)]
    learned = calibrate(slow)
    for shape in shapes_of(batches=(3, 7), contexts=(100, 200)):
        assert learned.step_seconds(shape) == pytest.approx(seconds_of(shape), rel=0.05)
    assert learned.error_span[1] > 2
    assert learned.error_p50 < 0.3


def made_longer(step: StepSample, factor: float) -> StepSample:
    return msgspec.structs.replace(step, seconds=factor * step.seconds)


def small_steps() -> list[StepShape]:
    return shapes_of(batches=(1, 2), contexts=(64, 128, 256), prompts=10)


def wide_steps(n: int) -> list[StepShape]:
    """Of 8 requests at 64 tokens."""
    return [StepShape(n_decode=8, decode_context=8 * 64, n_sampled=8)] * n


def holds(learned: Calibrated, shape: StepShape) -> bool:
    return Pace(learned.step_seconds, learned.ranges).holds(shape)


def spread_among(shapes: list[StepShape], rare: list[StepShape]) -> list[StepShape]:
    every = len(shapes) // len(rare)
    return [shape for i, one in enumerate(rare) for shape in (*shapes[i * every : (i + 1) * every], one)]


def test_one_odd_step_makes_nothing_seen(subject: Subject) -> None:
    """One step of 8 requests among hundreds of at most 2 is no word on 8 requests."""
    one, enough = (calibrate(steps_of(spread_among(small_steps(), wide_steps(n)))) for n in (1, 25))
    assert one.ranges["batch"] == (1, 2)
    assert enough.ranges["batch"] == (1, 8)
    error = refusal(subject, one, prompt_tokens=64, output_tokens=40, concurrency=8)
    assert (error.param, error.message[:7]) == ("concurrency", "batch: ")


def test_steps_of_one_moment_make_nothing_seen() -> None:
    """All errors there would be of fits that never knew of such steps."""
    at_once = calibrate(steps_of([*small_steps(), *wide_steps(19)]))
    assert at_once.ranges["batch"] == (1, 2)


def test_a_size_at_which_the_sum_does_not_hold_is_not_seen() -> None:
    """A cliff: 8 requests at once take ten times what the other steps say, time and again."""
    samples = steps_of(spread_among(small_steps(), wide_steps(25)))
    learned = calibrate([made_longer(step, 10.0) if step.n_decode == 8 else step for step in samples])
    assert not holds(learned, wide_steps(1)[0])


def test_prompts_beside_a_batch_are_seen_only_where_both_met() -> None:
    alone = [
        shape for shape in shapes_of(batches=(1, 8), contexts=(64, 256)) if not (shape.n_decode and shape.n_prefill)
    ]
    mixed = StepShape(n_decode=7, decode_context=7 * 90, n_sampled=8)
    mixed.add_prefill(64, 0, samples=True)
    assert not holds(calibrate(steps_of(alone)), mixed)
    both = [*alone, *shapes_of(batches=(1, 8), contexts=(64, 256), prompts=20)]
    Random(1).shuffle(both)
    assert holds(calibrate(steps_of(both)), mixed)


def with_long_prompts(factor: float) -> tuple[StepShape, list[StepSample]]:
    """A long prompt, and steps one in fifty of which are such ones and `factor` times as long as others let expect."""
    short = [shape for shape in shapes_of(batches=(1, 2), contexts=(64, 128, 256)) for _ in range(6)]
    prompt = StepShape()
    prompt.add_prefill(512, 0, samples=True)
    samples = steps_of(spread_among(short, [prompt] * 30))
    return prompt, [made_longer(step, factor) if step.n_prefill == 512 else step for step in samples]


@pytest.mark.parametrize("factor", [1.0, 1.3, 1.6])
def test_rare_large_prompts_are_no_outliers_whatever_the_many_small_steps_say(factor: float) -> None:
    prompt, samples = with_long_prompts(factor)
    learned = calibrate(samples)
    assert holds(learned, prompt)
    assert learned.step_seconds(prompt) == pytest.approx(factor * seconds_of(prompt), rel=0.2)


def test_rare_large_prompts_that_the_sum_cannot_explain_are_refused() -> None:
    prompt, samples = with_long_prompts(2.0)
    assert not holds(calibrate(samples), prompt)


def test_too_few_steps_are_refused(steps: list[StepSample]) -> None:
    with pytest.raises(PlatformError, match="remembers 50 steps, a calibration needs 100") as caught:
        calibrate(steps[:50])
    assert (caught.value.code, caught.value.param) == ("invalid_value", "live")


def test_a_prediction_within_what_was_seen_is_the_steps_sum(subject: Subject, calibrated: Calibrated) -> None:
    load = Load(prompt_tokens=256, output_tokens=40, concurrency=1)
    found = predicted(subject, load, calibrated)
    prompt, decode = StepShape(), StepShape()
    prompt.add_prefill(256, 0, samples=True)
    decode.add_decode(256 + 20)
    assert found.ttft_s == pytest.approx(seconds_of(prompt) + 0.004, rel=0.03)
    assert found.itl_s == pytest.approx(seconds_of(decode) + 0.004, rel=0.03)


@pytest.mark.parametrize(
    ("load", "param", "words"),
    [
        ({"concurrency": 12, "prompt_tokens": 96}, "concurrency", "batch: this workload has steps of 12 requests"),
        ({"concurrency": 2, "prompt_tokens": 700}, "prompt_tokens", "context: "),
        ({"concurrency": 1, "prompt_tokens": 20}, "prompt_tokens", "context: "),
        ({"concurrency": 2, "prompt_tokens": 96, "n_adapters": 2}, "adapters", "adapter_bytes: "),
    ],
)
def test_a_question_beyond_what_was_seen_is_refused_by_field_and_range(
    subject: Subject, calibrated: Calibrated, load: dict[str, Any], param: str, words: str
) -> None:
    error = refusal(subject, calibrated, output_tokens=40, **load)
    assert error.param == param
    assert error.message.startswith(words)
    assert "has only been seen at" in error.message


def test_many_requests_at_long_contexts_are_refused_where_only_one_of_both_was_seen(subject: Subject) -> None:
    few_long = shapes_of(batches=(1, 2), contexts=(64, 256, 520))
    many_short = shapes_of(batches=(4, 8), contexts=(64, 96))
    learned = calibrate(steps_of([*few_long, *many_short]))
    error = refusal(subject, learned, prompt_tokens=420, output_tokens=40, concurrency=8)
    assert error.message.startswith("batch_context: ")


def test_a_live_plan_shows_only_batches_that_were_seen(subject: Subject, calibrated: Calibrated) -> None:
    plan = make_plan(Load(prompt_tokens=256, output_tokens=40, concurrency=4), subject, calibrated)
    assert [point.batch for point in plan.curve] == [1, 2, 4, 8]
    assert plan.estimate is not None
    for estimated in (plan.estimate.ttft_s, plan.estimate.itl_s, plan.estimate.output_tokens_per_s):
        assert estimated.low is not None
        assert estimated.high is not None
        assert estimated.low < estimated.value < estimated.high


def test_engines_for_a_rate_are_counted_on_for_the_most_that_was_seen(subject: Subject, calibrated: Calibrated) -> None:
    plan = make_plan(Load(prompt_tokens=256, output_tokens=40, requests_per_s=2.0), subject, calibrated)
    assert plan.notes[0].startswith("One engine is counted on for 8 requests at once")
    assert plan.replicas is not None
    assert plan.replicas >= 2
