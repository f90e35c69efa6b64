"""A recorded trace: JSON lines, one request each, in the order of their times; read as they are needed.

{"at": 0.25, "tenant": "acme", "prompt_tokens": 512, "output_tokens": 64, "adapter": "support", "rank": 16}
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.scheduling.plan import SamplingParams
from lorikeet_engine.scheduling.request import Request
from lorikeet_engine.simulation.workload.adapter_catalogue import AdapterCatalogue
from lorikeet_engine.simulation.workload.arrival import Arrival, random_tokens
from lorikeet_engine.simulation.workload.description import Workload
from lorikeet_engine.simulation.workload.strict_records import DescriptionError, read_record


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRequest:
    """One line of a trace.

    Attributes:
        at: seconds since the trace began.
        max_tokens: what the client asked for; 0 = exactly what the answer took.
        adapter: the tenant's name for it; empty = the base model.
        prefix: requests of one tenant with the same word begin with the same `prefix_tokens` tokens.
        abort_after_s: when the client hung up; 0 = it waited.
    """

    at: float
    tenant: str
    prompt_tokens: int
    output_tokens: int
    weight: float = 1.0
    max_tokens: int = 0
    adapter: str = ""
    rank: int = 16
    targets: tuple[str, ...] = ("q_proj", "v_proj")
    prefix: str = ""
    prefix_tokens: int = 0
    abort_after_s: float = 0.0

    def __post_init__(self) -> None:
        if min(self.prompt_tokens, self.output_tokens, self.rank) < 1 or self.prefix_tokens >= self.prompt_tokens:
            raise DescriptionError("prompt, output and rank are at least 1, and a prefix is shorter than its prompt")
        if self.weight <= 0 or min(self.at, self.abort_after_s, self.max_tokens) < 0:
            raise DescriptionError("a weight is above 0, and no time or length is negative")


def read_trace(path: Path) -> Iterator[RecordedRequest]:
    """The lines of a trace, checked as they are read.

    Raises:
        DescriptionError: there is no such file, a line is no recorded request, or its time is before the last one's.
    """
    if not path.is_file():
        raise DescriptionError(f"there is no trace {path}")
    last_at = 0.0
    with path.open() as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                recorded = read_record(RecordedRequest, json.loads(line), f"{path.name} line {number}")
            except json.JSONDecodeError as error:
                raise DescriptionError(f"{path.name} line {number} is not JSON: {error}") from None
            if recorded.at < last_at:
                raise DescriptionError(f"{path.name} line {number} comes before the line above it")
            last_at = recorded.at
            yield recorded


class RecordedTraffic:
    """A trace as traffic; tokens are drawn, since traces hold lengths and not what people wrote."""

    def __init__(self, workload: Workload, catalogue: AdapterCatalogue) -> None:
        self._lines = read_trace(Path(workload.trace))
        self._end_s = workload.duration_s or float("inf")
        self._n_left = workload.n_requests or float("inf")
        self._catalogue = catalogue
        self._seed = workload.seed
        self._source = Random(f"{workload.seed}/trace")
        self._n = 0
        self._next = next(self._lines, None)

    def next_at(self) -> float | None:
        if self._next is None or self._next.at >= self._end_s or self._n_left < 1:
            return None
        return self._next.at

    def take(self, now: float) -> list[Arrival]:
        arrivals: list[Arrival] = []
        while self._next and (at := self.next_at()) is not None and at <= now:
            arrivals.append(self._arrival(self._next))
            self._next = next(self._lines, None)
            self._n_left -= 1
        return arrivals

    def on_ended(self, request_id: str, now: float) -> None:
        """What was recorded comes when it came, whatever became of the requests before it."""

    def _arrival(self, recorded: RecordedRequest) -> Arrival:
        self._n += 1
        adapter = AdapterKey(recorded.tenant, recorded.adapter) if recorded.adapter else None
        if adapter and adapter not in self._catalogue.n_grains:
            self._catalogue.add(adapter, recorded.rank, recorded.targets)
        head: tuple[int, ...] = ()
        if recorded.prefix:
            head_source = Random(f"{self._seed}/{recorded.tenant}/{recorded.prefix}")
            head = random_tokens(head_source, recorded.prefix_tokens)
        request = Request(
            request_id=f"trace#{self._n}",
            tenant=recorded.tenant,
            weight=recorded.weight,
            prompt=head + random_tokens(self._source, recorded.prompt_tokens - len(head)),
            max_tokens=recorded.max_tokens or recorded.output_tokens,
            sampling=SamplingParams(),
            adapter=adapter,
            cache_salt=recorded.tenant.encode(),
        )
        n_output = min(recorded.output_tokens, request.max_tokens)
        return Arrival(recorded.at, request, n_output, recorded.abort_after_s)
