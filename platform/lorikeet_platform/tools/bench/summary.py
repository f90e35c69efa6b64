"""What the requests of a point say: latencies, rates, goodput; by tenant as well. Knows records only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from lorikeet_engine.cost import attainment
from lorikeet_engine.experiments.measures import Outcome
from lorikeet_engine.experiments.record import PointRecord, RequestRecord, RunRecord
from lorikeet_engine.simulation.report.samples import mean, percentile

METRICS: Final = ("ttft", "tpot", "itl", "e2el")
GOAL_METRICS: Final = ("ttft", "tpot", "e2el")  # those that each request has one of
OUTCOMES: Final = ("ok", "refused", "expired", "failed", "aborted")


@dataclass(frozen=True, slots=True)
class Latency:
    """One metric over the served requests, in seconds; `percentiles` as they were asked for.

    Where `count` is 0 nobody had it, and the figures are no figures.
    """

    metric: str
    count: int
    mean: float
    percentiles: Mapping[float, float]


@dataclass(frozen=True, slots=True)
class Goodput:
    """Requests that kept all of the goals; those that were refused or failed kept none. Without aborted ones.

    Nor does an answer without text keep a goal for its first piece; one of a single token has no pace to keep.
    """

    goals: Mapping[str, float]
    met: int
    missed: int
    requests_per_s: float
    share: float


@dataclass(frozen=True, slots=True)
class TenantSummary:
    """What one tenant's requests got; None where nobody got a first piece."""

    tenant: str
    sent: int
    served: int
    output_tokens: int
    ttft_p50: float | None
    ttft_p99: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    """Of one point."""

    seconds: float
    outcomes: Mapping[str, int]
    codes: Mapping[str, int]
    prompt_tokens: int
    cached_tokens: int | None
    output_tokens: int
    latencies: Sequence[Latency]
    tenants: Sequence[TenantSummary]
    adapters: Mapping[str, int]
    goodput: Goodput | None

    @property
    def requests_per_s(self) -> float:
        return self.outcomes["ok"] / self.seconds if self.seconds else 0.0

    @property
    def output_tokens_per_s(self) -> float:
        return self.output_tokens / self.seconds if self.seconds else 0.0

    @property
    def total_tokens_per_s(self) -> float:
        return (self.prompt_tokens + self.output_tokens) / self.seconds if self.seconds else 0.0

    @property
    def is_clean(self) -> bool:
        """Whether every request was served."""
        return not sum(n for outcome, n in self.outcomes.items() if outcome not in ("ok", "aborted"))


def summarise(
    point: PointRecord,
    *,
    metrics: Sequence[str] = METRICS,
    shares: Sequence[float] = (0.5, 0.9, 0.99),
    goals: Mapping[str, float] | None = None,
) -> Summary:
    """`goals` in seconds, by metric."""
    requests = point.requests
    served = [request for request in requests if request.outcome == "ok"]
    cached = [request.n_cached for request in served if request.n_cached is not None]
    return Summary(
        seconds=point.seconds,
        outcomes={outcome: sum(request.outcome == outcome for request in requests) for outcome in OUTCOMES},
        codes=Counter(request.code for request in requests if request.code),
        prompt_tokens=sum(request.n_prompt for request in served),
        cached_tokens=sum(cached) if cached else None,
        output_tokens=sum(request.n_output for request in requests),
        latencies=[_latency(metric, point, served, shares) for metric in metrics],
        tenants=[_tenant(name, requests) for name in sorted({request.tenant for request in requests})],
        adapters=Counter(request.adapter for request in requests if request.adapter),
        goodput=_goodput(requests, goals, point.seconds) if goals else None,
    )


def served_part(record: RunRecord) -> RunRecord:
    """A sweep without the points at which nothing was served: they have no latency, and a rate of 0 is not theirs."""
    if not record.axis:
        return record
    return replace(record, points=[point for point in record.points if any(r.outcome == "ok" for r in point.requests)])


def values_of(metric: str, requests: Iterable[RequestRecord]) -> list[float]:
    """One for each request that has it."""
    return [value for request in requests if (value := value_of(metric, request)) is not None]


def value_of(metric: str, request: RequestRecord) -> float | None:
    """None: a request of one token has no time between tokens, and one without text no first piece."""
    first_s, last_s = request.first_s, request.last_s
    match metric:
        case "ttft":
            return None if first_s is None else first_s - request.sent_s
        case "tpot":
            if first_s is None or last_s is None or request.n_output < 2:
                return None
            return (last_s - first_s) / (request.n_output - 1)
        case _:
            return None if last_s is None else last_s - request.sent_s


def _latency(metric: str, point: PointRecord, served: Sequence[RequestRecord], shares: Sequence[float]) -> Latency:
    if metric == "itl":
        looked_at = Outcome(point)
        n = sum(count for _, count in point.gaps)
        average = sum(seconds * count for seconds, count in point.gaps) / n if n else 0.0
        return Latency(metric, n, average, {share: looked_at.gap_at(share) for share in shares})
    values = sorted(values_of(metric, served))
    return Latency(metric, len(values), mean(values), {share: percentile(values, share) for share in shares})


def _tenant(name: str, requests: Sequence[RequestRecord]) -> TenantSummary:
    own = [request for request in requests if request.tenant == name]
    served = [request for request in own if request.outcome == "ok"]
    ttft = sorted(values_of("ttft", served))
    n_output = sum(request.n_output for request in own)
    p50, p99 = (percentile(ttft, share) if ttft else None for share in (0.5, 0.99))
    return TenantSummary(name, len(own), len(served), n_output, p50, p99)


def _has_kept(metric: str, goal: float, request: RequestRecord) -> bool:
    value = value_of(metric, request)
    if value is None:
        return metric == "tpot" and request.n_output < 2
    return value <= goal


def _goodput(requests: Sequence[RequestRecord], goals: Mapping[str, float], seconds: float) -> Goodput:
    served = [request for request in requests if request.outcome == "ok"]
    met = sum(all(_has_kept(metric, goal, request) for metric, goal in goals.items()) for request in served)
    lost = sum(request.outcome in ("refused", "failed") for request in requests)
    expired = sum(request.outcome == "expired" for request in requests)
    missed = len(served) - met
    share = attainment(met=met, missed=missed, rejected=lost, expired=expired)
    return Goodput(goals, met, missed + lost + expired, met / seconds if seconds else 0.0, share)
