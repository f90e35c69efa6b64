"""Makes one plan of a subject and a workload: tables, estimate, engines for the load, recommended settings."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

from lorikeet_engine.cost import roofline_seconds
from lorikeet_engine.sizing.capacity import BUSY_SHARE, replicas_for
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.planning import sizing
from lorikeet_platform.planning.learning.calibration import Calibrated
from lorikeet_platform.planning.learning.pace import Pace
from lorikeet_platform.planning.prediction import Load, Prediction, predict
from lorikeet_platform.planning.schemas import (
    Calibration,
    CapacityPlan,
    CurvePoint,
    Estimate,
    Estimated,
    MemoryRow,
    PlanQuestion,
)
from lorikeet_platform.planning.subject import Subject

DEFAULT_TARGETS = ("q_proj", "v_proj")


def load_of(question: PlanQuestion) -> Load:
    """The workload that is asked about; raises PlatformError(invalid_value)."""
    if (question.concurrency is None) == (question.requests_per_s is None):
        raise PlatformError("invalid_value", "Say concurrency or requests_per_s, one of them.", "concurrency")
    load = Load(
        prompt_tokens=question.prompt_tokens,
        output_tokens=question.output_tokens,
        concurrency=question.concurrency or 0,
        requests_per_s=question.requests_per_s or 0.0,
    )
    if question.adapters is None:
        return load
    asked = question.adapters
    targets = tuple(asked.modules or DEFAULT_TARGETS)
    sizing.modules_of(targets)
    return replace(load, n_adapters=asked.count, rank=asked.rank, targets=targets)


@dataclass(frozen=True, slots=True)
class Outlook:
    """What one engine's users would see, and how many engines the whole load takes."""

    prediction: Prediction
    replicas: int
    notes: tuple[str, ...] = ()


def make_plan(
    load: Load, subject: Subject, calibrated: Calibrated | None = None, shown: Calibration | None = None
) -> CapacityPlan:
    """By formulas on the device's constants, or by what a running engine's steps have taught; `shown` is said of it.

    Raises:
        PlatformError: invalid_value naming the field, also for what lies outside of a calibration's data.
    """
    one_step = _pace(subject, calibrated)
    lora = sizing.lora_ledgers(subject, load) if load.n_adapters else None
    curve = sizing.batch_curve(subject, load, one_step)
    outlook = _outlook(subject, load, calibrated)
    return CapacityPlan(
        basis="formulas" if calibrated is None else "live",
        model=subject.model,
        device=subject.device,
        memory=[MemoryRow(name=name, bytes=n_bytes) for name, n_bytes in subject.memory],
        available_bytes=subject.available_bytes,
        request_kv_bytes=sizing.request_bytes(subject, load.context),
        pool_tokens=subject.pool_tokens,
        theoretical_concurrency=sizing.concurrency_of(subject, load.context),
        steps=sizing.sizing_steps(subject, load, one_step),
        concurrency_table=sizing.concurrency_table(subject, load),
        curve=curve,
        balanced_batch=sizing.balanced(subject, load),
        lora=lora,
        estimate=_estimate(outlook.prediction, calibrated),
        replicas=outlook.replicas,
        knobs=sizing.recommended_knobs(subject, load, lora),
        notes=[*outlook.notes, *_notes(subject, load, outlook.prediction, curve)],
        calibration=shown,
    )


def _pace(subject: Subject, calibrated: Calibrated | None) -> Pace:
    if calibrated is None:
        return Pace(partial(roofline_seconds, subject.cost, subject.profile))
    return Pace(calibrated.step_seconds, calibrated.ranges)


def predicted(subject: Subject, load: Load, calibrated: Calibrated | None, seats: int = 0) -> Prediction:
    """On one engine; with the seats it has, or would be advised, unless told."""
    overhead_s = 0.0 if calibrated is None else calibrated.host_overhead_s
    seats = seats or sizing.seats_of(subject, load.context)
    return predict(subject, seats, load, _pace(subject, calibrated), host_overhead_s=overhead_s)


def _outlook(subject: Subject, load: Load, calibrated: Calibrated | None) -> Outlook:
    """Clients are shared out to as many engines as seat them, a rate to as many as carry it."""
    seats = sizing.seats_of(subject, load.context)
    if load.concurrency:
        replicas = max(1, math.ceil(load.concurrency / seats))
        share = replace(load, concurrency=math.ceil(load.concurrency / replicas))
        clients = f"The estimate is of one engine with {share.concurrency:,} of the {load.concurrency:,} clients."
        return Outlook(predicted(subject, share, calibrated), replicas, (clients,) if replicas > 1 else ())
    notes = []
    busiest = seats
    if calibrated is not None and (seen := max(1, int(calibrated.ranges.get("batch", (0, 0))[1]))) < seats:
        busiest = seen
        notes.append(f"One engine is counted on for {seen} requests at once, the most that it has been seen with.")
    full = predicted(subject, replace(load, requests_per_s=0.0, concurrency=busiest), calibrated, busiest)
    capacity = full.output_tokens_per_s / load.output_tokens
    replicas = replicas_for(load.requests_per_s, capacity)
    share = replace(load, requests_per_s=load.requests_per_s / replicas)
    notes.append(
        f"One engine does {capacity:,.3g} requests/s with {busiest} at once; it is given at most "
        f"{sizing.percent(BUSY_SHARE)} of that, so that its queue stays short."
    )
    if replicas > 1:
        notes.append(f"The estimate is of one engine with {share.requests_per_s:,.3g} requests/s, its share.")
    return Outlook(predicted(subject, share, calibrated, busiest), replicas, tuple(notes))


def _estimate(prediction: Prediction, calibrated: Calibrated | None) -> Estimate:
    low, high = (None, None) if calibrated is None else calibrated.error_span

    def held(value: float) -> Estimated:
        if low is None or high is None:
            return Estimated(value=value, low=None, high=None)
        return Estimated(value=value, low=value * low, high=value * high)

    rate = held(prediction.output_tokens_per_s)
    if low is not None and high is not None:  # slower steps, fewer tokens
        rate = Estimated(value=rate.value, low=rate.value / high, high=rate.value / low)
    return Estimate(
        ttft_s=held(prediction.ttft_s),
        itl_s=held(prediction.itl_s),
        output_tokens_per_s=rate,
        total_s=held(prediction.total_s),
    )


def _notes(subject: Subject, load: Load, prediction: Prediction, curve: list[CurvePoint]) -> list[str]:
    notes = ["Every request has exactly these lengths and a prompt that no other one shares."]
    if load.concurrency:
        notes.append("TTFT is of clients that all start at once, and ask again as soon as they are answered.")
    if load.n_adapters:
        notes.append("All adapters are asked for equally often.")
    per_step = subject.config.max_adapters_per_step
    if load.n_adapters > per_step:
        notes.append(f"max_adapters_per_step lets {per_step} different adapters into one step.")
    if not prediction.is_simulated:
        notes.append("Estimated by formulas: this workload takes too long to simulate.")
    elif prediction.preemptions:
        seats = sizing.suggested_seats(subject, load.context)
        notes.append(f"{prediction.preemptions} preemptions in the simulated run; max_num_seqs {seats} avoids them.")
    full = sizing.saturating_batch(curve)
    if full is not None and full.batch < sizing.suggested_seats(subject, load.context):
        notes.append(
            f"More than {full.batch} at once bring hardly more tokens a second, and tokens come slower: "
            f"max_num_seqs {full.batch} favours latency."
        )
    deadline_s = subject.config.ttft_deadline
    if deadline_s and prediction.ttft_s > deadline_s / 2:
        notes.append(f"ttft_deadline is {deadline_s:g} s: the engine would refuse requests that wait longer.")
    return notes
