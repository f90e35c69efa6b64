"""What happens to each request, and the state of the engine as time goes on.

Millions of tokens pass through `token`; a request that ended leaves only its numbers behind.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from lorikeet_engine.simulation.report.samples import Gaps
from lorikeet_engine.simulation.workload.arrival import Arrival
from lorikeet_engine.simulation.workload.description import Slo

MAX_SAMPLES = 4000


def _doubles() -> array[float]:
    return array("d")


@dataclass(slots=True)
class TenantRecord:
    """Everything about one tenant's requests. `met` and `missed` are of those that were served to their end."""

    tenant: str
    weight: float
    ttft: array[float] = field(default_factory=_doubles)
    tpot: array[float] = field(default_factory=_doubles)
    e2e: array[float] = field(default_factory=_doubles)
    queue: array[float] = field(default_factory=_doubles)
    gaps: Gaps = field(default_factory=Gaps)
    submitted: int = 0
    met: int = 0
    missed: int = 0
    refused: int = 0
    expired: int = 0
    aborted: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    good_tokens: int = 0


@dataclass(slots=True)
class OpenRequest:
    """A request between its arrival and its end; `adapter` is a digest, empty for the base model.

    `n_cached` and `queue_s` are known when it begins to run.
    """

    record: TenantRecord
    arrived: float
    n_prompt: int
    adapter: str
    predicted_s: float = 0.0
    n_cached: int | None = None
    queue_s: float | None = None
    first_at: float = 0.0
    last_at: float = 0.0
    n_output: int = 0


@dataclass(slots=True)
class Sample:
    """The engine at one moment; KV shares are of the pool, and `used` leaves out what is only promised or cached."""

    at: float
    running: int
    waiting: int
    kv_used: float
    kv_reserved: float
    kv_cached: float
    arena_used: float
    output_tokens: int


class Recorder:
    """Keeps the numbers that the report is made of.

    `ended` is told of every request that is over: what is known of it, "ok", "refused", "expired", "failed" or
    "aborted", and the reason of one that was not served.
    """

    def __init__(self, slo: Slo, *, sample_every_s: float = 0.1) -> None:
        self._slo = slo
        self.ended: Callable[[OpenRequest, str, str], None] | None = None
        self.tenants: dict[str, TenantRecord] = {}
        self.open: dict[str, OpenRequest] = {}
        self.samples: list[Sample] = []
        self.refusals: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.predicted = _doubles()  # TTFT as predicted and as it came, of the same requests
        self.actual = _doubles()
        self.kv_peak = 0.0
        self.n_with_adapter = 0  # admitted requests that needed an adapter
        self.output_tokens = 0
        self._sample_every_s = sample_every_s
        self._next_sample = 0.0

    def arrived(self, arrival: Arrival) -> None:
        request = arrival.request
        record = self.tenants.get(request.tenant)
        if record is None:
            record = self.tenants[request.tenant] = TenantRecord(request.tenant, request.weight)
        record.submitted += 1
        adapter = request.adapter.digest if request.adapter else ""
        self.open[request.request_id] = OpenRequest(record, arrival.at, len(request.prompt), adapter)

    def queued(self, request_id: str, predicted_s: float) -> None:
        self.open[request_id].predicted_s = predicted_s

    def refused(self, request_id: str, reason: str) -> None:
        times = self._close(request_id, "refused", reason)
        times.record.refused += 1
        self.refusals[reason] += 1

    def admitted(self, request_id: str, cached_tokens: int, queue_s: float) -> None:
        times = self.open[request_id]
        times.record.prompt_tokens += times.n_prompt
        times.record.cached_tokens += cached_tokens
        times.record.queue.append(queue_s)
        times.n_cached, times.queue_s = cached_tokens, queue_s
        self.n_with_adapter += bool(times.adapter)

    def token(self, request_id: str, now: float, *, is_last: bool) -> None:
        times = self.open[request_id]
        if times.n_output:
            times.record.gaps.add(now - times.last_at)
        else:
            times.first_at = now
            times.record.ttft.append(now - times.arrived)
            self.predicted.append(times.predicted_s)
            self.actual.append(now - times.arrived)
        times.last_at = now
        times.n_output += 1
        self.output_tokens += 1
        if is_last:
            self._served(self._close(request_id, "ok"))

    def failed(self, request_id: str, code: str) -> None:
        is_expired = code == "deadline_exceeded"
        times = self._close(request_id, "expired" if is_expired else "failed", code)
        times.record.output_tokens += times.n_output
        self.failures[code] += 1
        if is_expired:
            times.record.expired += 1
        else:
            times.record.failed += 1

    def aborted(self, request_id: str) -> None:
        times = self._close(request_id, "aborted")
        times.record.aborted += 1
        times.record.output_tokens += times.n_output

    def is_due(self, now: float) -> bool:
        return now >= self._next_sample

    def sample(self, sample: Sample) -> None:
        """Keep the sample; when there are too many, every other one goes and they come half as often."""
        self.samples.append(sample)
        if len(self.samples) >= MAX_SAMPLES:
            self.samples = self.samples[::2]
            self._sample_every_s *= 2
        self._next_sample = sample.at + self._sample_every_s

    def _close(self, request_id: str, outcome: str, reason: str = "") -> OpenRequest:
        times = self.open.pop(request_id)
        if self.ended:
            self.ended(times, outcome, reason)
        return times

    def _served(self, times: OpenRequest) -> None:
        record, n = times.record, times.n_output
        tpot = (times.last_at - times.first_at) / (n - 1) if n > 1 else 0.0
        ttft = times.first_at - times.arrived
        record.e2e.append(times.last_at - times.arrived)
        if n > 1:
            record.tpot.append(tpot)
        record.output_tokens += n
        if ttft <= self._slo.ttft_s and tpot <= self._slo.tpot_s:
            record.met += 1
            record.good_tokens += n
        else:
            record.missed += 1
