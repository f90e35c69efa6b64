"""Recent traffic as a load, and a calibration's word on it beside what was measured."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lorikeet_engine.stats import BOUNDS_S, EngineDesign, Histogram, StepSample
from lorikeet_platform.engine_watch.window import Window
from lorikeet_platform.planning.learning.calibration import calibrate
from lorikeet_platform.planning.learning.comparing import calibration_shown, traffic_of
from lorikeet_platform.planning.subject import running_subject
from tests.platform.planning.conftest import seconds_of, shapes_of, steps_of
from tests.support.engine_figures import engine_stats

N, PROMPT, OUTPUT = 10, 128, 40


def histogram(measure: str, n: int, mean_s: float) -> Histogram:
    counts = [0] * (len(BOUNDS_S) + 1)
    counts[5] = n
    return Histogram(measure=measure, by="kind", label="base", counts=counts, sum_s=n * mean_s)


def window(steps: list[StepSample], *, seconds: float, e2e_s: float, **means: float) -> Window:
    """Of `N` requests with prompts of `PROMPT` tokens and answers of `OUTPUT`."""
    before: dict[str, Any] = {"prompt_tokens_total": 0, "generated_tokens_total": 0}
    after = {"prompt_tokens_total": N * PROMPT, "generated_tokens_total": N * OUTPUT}
    histograms = [histogram("e2e", N, e2e_s), *(histogram(name, N, mean_s) for name, mean_s in means.items())]
    return Window(engine_stats(**before), engine_stats(**after, histograms=histograms), seconds, steps)


def alone(n: int) -> list[StepSample]:
    """Steps of one request at a time."""
    return steps_of(shapes_of(batches=(1,), contexts=(PROMPT,) * n, prompts=1), noise=0.0)


def test_a_busy_window_is_a_closed_loop_of_its_mean_request() -> None:
    steps = alone(10)
    busy_s = sum(step.seconds for step in steps)
    load = traffic_of(window(steps, seconds=busy_s, e2e_s=3 * busy_s / N))
    assert load is not None
    assert (load.prompt_tokens, load.output_tokens, load.concurrency) == (PROMPT, OUTPUT, 3)


def test_a_window_with_pauses_is_a_rate() -> None:
    steps = alone(10)
    busy_s = sum(step.seconds for step in steps)
    load = traffic_of(window(steps, seconds=4 * busy_s, e2e_s=busy_s / N))
    assert load is not None
    assert load.concurrency == 0
    assert load.requests_per_s == pytest.approx(N / (4 * busy_s))


def test_a_window_without_requests_says_nothing() -> None:
    assert traffic_of(Window(engine_stats(), engine_stats(), 60.0)) is None


def test_predicted_and_measured_stand_side_by_side(design: EngineDesign, steps: list[StepSample]) -> None:
    made = alone(10)
    busy_s = sum(step.seconds for step in made)
    seen = window(made, seconds=busy_s, e2e_s=busy_s / N, itl=0.036, ttft=0.2)
    shown = calibration_shown(running_subject("smollm2", design, {}, 1), calibrate(steps), seen)
    rows = {row.name: row for row in shown.measured}
    assert set(rows) == {"ttft", "itl", "e2e", "running"}
    decode = shapes_of(batches=(1,), contexts=(PROMPT,), prompts=1)[10]
    assert rows["itl"].predicted == pytest.approx(seconds_of(decode) + 0.004, rel=0.05)
    assert rows["itl"].low < rows["itl"].measured < rows["itl"].high
    assert (rows["running"].predicted, rows["running"].measured) == (1, 1)


def test_traffic_on_adapters_is_compared_with_steps_that_carry_them(
    design: EngineDesign, steps: list[StepSample]
) -> None:
    """A second of adapters in every step of the window, and in half of those learned from."""

    def carrying(step: StepSample) -> StepSample:
        return msgspec.structs.replace(step, lora_bytes=1000, seconds=step.seconds + 1.0)

    learned = calibrate([carrying(step) if i % 2 else step for i, step in enumerate(steps)])
    made = [carrying(step) for step in alone(10)]
    busy_s = sum(step.seconds for step in made)
    seen = window(made, seconds=busy_s, e2e_s=busy_s / N, itl=1.036)
    shown = calibration_shown(running_subject("smollm2", design, {}, 1), learned, seen)
    itl = next(row for row in shown.measured if row.name == "itl")
    assert itl.predicted == pytest.approx(itl.measured, rel=0.05)


def test_without_a_window_there_is_nothing_to_compare(design: EngineDesign, steps: list[StepSample]) -> None:
    assert calibration_shown(running_subject("smollm2", design, {}, 1), calibrate(steps), None).measured == []
