"""What a sweep over prompt lengths is made for: lines through its points, and what their slopes say of the machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lorikeet_engine.experiments.measures import Line, Outcome, fit_line
from lorikeet_engine.experiments.record import RunRecord, SetupValue

LENGTH = "prompt_tokens"


@dataclass(frozen=True, slots=True)
class Series:
    """Points of a run that differ in nothing but its axis; `named` is what tells them from other series."""

    named: dict[str, SetupValue]
    outcomes: list[Outcome]


def series_of(record: RunRecord) -> list[Series]:
    """In the order of the run. A head that is the same part of all prompts is one series, however long."""
    outcomes = [Outcome(point) for point in record.points]
    rest = [_rest(outcome, record.axis) for outcome in outcomes]
    names = dict.fromkeys(name for setup in rest for name in setup)
    varied = [name for name in names if len({setup.get(name) for setup in rest}) > 1]
    found: dict[tuple[SetupValue | None, ...], Series] = {}
    for outcome, setup in zip(outcomes, rest, strict=True):
        named = {name: setup[name] for name in varied if name in setup}
        found.setdefault(tuple(setup.get(name) for name in varied), Series(named, [])).outcomes.append(outcome)
    return list(found.values())


def _rest(outcome: Outcome, axis: str) -> dict[str, SetupValue]:
    setup = {name: value for name, value in outcome.setup.items() if name != axis}
    if axis == LENGTH and "shared_tokens" in setup:
        setup["shared_share"] = round(float(setup.pop("shared_tokens")) / float(outcome.setup[LENGTH]), 2)
    return setup


def kv_line(outcomes: Sequence[Outcome], pool_tokens: int | None = None) -> Line:
    """Tokens' worth of KV in use at the peak, over the prompts' length; its slope is the requests that run at once.

    `pool_tokens` is the pool's room where the points do not say it.
    """
    return fit_line([(float(outcome.setup[LENGTH]), peak_tokens(outcome, pool_tokens)) for outcome in outcomes])


def peak_tokens(outcome: Outcome, pool_tokens: int | None = None) -> float:
    room, peak = outcome.point.pool_tokens or pool_tokens, outcome.kv_peak
    if room is None or peak is None:
        raise ValueError("the record does not say how much of what pool was in use")
    return room * peak


def itl_line(outcomes: Sequence[Outcome], share: float = 0.5) -> Line:
    """Seconds between tokens over the prompts' length."""
    return fit_line([(float(outcome.setup[LENGTH]), outcome.gap_at(share)) for outcome in outcomes])


def implied_bandwidth(itl: Line, concurrency: int, kv_bytes_per_token: int) -> float:
    """Bytes a second at which the KV of the running requests is read, if nothing else of a step grows with length."""
    return concurrency * kv_bytes_per_token / itl.slope if itl.slope > 0 else float("inf")
