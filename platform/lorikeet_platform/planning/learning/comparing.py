"""What a calibration says of the traffic that an engine has just had, beside what that traffic measured."""

from __future__ import annotations

from dataclasses import replace

from lorikeet_engine.cost import StepShape
from lorikeet_platform.engine_watch.window import Window
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.planning.learning.calibration import Calibrated
from lorikeet_platform.planning.planner import predicted
from lorikeet_platform.planning.prediction import Load
from lorikeet_platform.planning.schemas import Calibration, Compared, SeenRange
from lorikeet_platform.planning.subject import Subject

BUSY_SHARE = 0.8  # of the window in steps: clients that ask again at once, rather than now and then


def calibration_shown(subject: Subject, calibrated: Calibrated, window: Window | None) -> Calibration:
    """With a comparison where there was traffic to compare with; it is of requests of mean lengths."""
    return Calibration(
        steps=calibrated.n_steps,
        error_p50=calibrated.error_p50,
        error_p90=calibrated.error_p90,
        measured=[] if window is None else _compared(subject, calibrated, window),
        ranges=[SeenRange(name=name, low=low, high=high) for name, (low, high) in calibrated.ranges.items()],
    )


def traffic_of(window: Window) -> Load | None:
    """The window's requests as a load of equal ones; None without any that ended."""
    ended, busy_s = window.spread("e2e"), sum(step.seconds for step in window.steps)
    if not ended.count or not window.prompt_tokens or window.generated_tokens < ended.count:
        return None
    load = Load(
        prompt_tokens=max(1, round(window.prompt_tokens / ended.count)),
        output_tokens=max(1, round(window.generated_tokens / ended.count)),
    )
    at_once = max(1, round(ended.sum_s / max(busy_s, 1e-9)))
    if busy_s >= BUSY_SHARE * window.seconds:
        return Load(prompt_tokens=load.prompt_tokens, output_tokens=load.output_tokens, concurrency=at_once)
    rate = ended.count / window.seconds
    return Load(prompt_tokens=load.prompt_tokens, output_tokens=load.output_tokens, requests_per_s=rate)


def _compared(subject: Subject, calibrated: Calibrated, window: Window) -> list[Compared]:
    load = traffic_of(window)
    if load is None:
        return []
    try:
        prediction = predicted(subject, load, _with_adapters(calibrated, window))
    except PlatformError:
        return []  # requests so unlike one another that equal ones would make steps that never were
    low, high = calibrated.error_span
    rows = [
        Compared(name=name, predicted=value, low=value * low, high=value * high, measured=window.spread(name).mean_s)
        for name, value in (("ttft", prediction.ttft_s), ("itl", prediction.itl_s), ("e2e", prediction.total_s))
        if window.spread(name).count
    ]
    running = max((step.running for step in window.steps), default=0)
    peak = prediction.peak_running
    return [*rows, Compared(name="running", predicted=peak, low=peak, high=peak, measured=running)]


def _with_adapters(calibrated: Calibrated, window: Window) -> Calibrated:
    """Steps that carry as much of adapters as those of the window did on average."""
    steps = window.steps
    tokens = sum(step.n_decode + step.n_prefill for step in steps)
    if not tokens:
        return calibrated
    n_bytes = sum(step.lora_bytes for step in steps) // len(steps)
    flops_per_token = sum(step.lora_flops for step in steps) // tokens

    def step_seconds(shape: StepShape) -> float:
        flops = flops_per_token * (shape.n_decode + shape.n_prefill)
        return calibrated.step_seconds(replace(shape, lora_bytes=n_bytes, lora_flops=flops))

    return replace(calibrated, step_seconds=step_seconds)
