"""What the loop tells whoever watches it, and the records in which that one answers.

Called between two steps, from the loop's thread, with the loop's own times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from lorikeet_engine.cost import StepShape
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.observing.prompt_heads import Alike, Whose
from lorikeet_engine.observing.steps import StepRecord
from lorikeet_engine.scheduling.batching.batch import AdapterRows
from lorikeet_engine.scheduling.counters import AdapterNews
from lorikeet_engine.scheduling.events import Event, RequestFailure
from lorikeet_engine.scheduling.request import Request


class StepTaken(NamedTuple):
    """A step that ran; `adapters`, `running`, `waiting` and `kv_used_bytes` as it was planned."""

    kind: str
    shape: StepShape
    adapters: Mapping[AdapterKey, AdapterRows]
    end_s: float
    seconds: float
    running: int
    waiting: int
    kv_used_bytes: int


class Bins(NamedTuple):
    """One histogram; the fields of `stats.Histogram`."""

    measure: str
    by: str
    label: str
    counts: list[int]
    sum_s: float


class Use(NamedTuple):
    """What one adapter did; the fields of `stats.AdapterUse`."""

    tenant: str
    digest: str
    tokens: int
    loads: int
    evictions: int
    stall_s: float
    read_bytes: float
    row_flops: float


@dataclass(frozen=True, slots=True)
class Observed:
    """The figures of one moment; `tenants` are those told apart by name."""

    bins: list[Bins] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)
    tenants: list[str] = field(default_factory=list)
    kv_peak_bytes: int = 0
    fairness: float = 1.0


class Observer(Protocol):
    def submitted(self, requests: Sequence[Request]) -> None:
        """The requests of one submit are in the queue."""
        ...

    def aborted(self, request_id: str) -> None: ...

    def failed(self, failures: Iterable[RequestFailure]) -> None:
        """These ended outside of a step that ran."""
        ...

    def adapters_placed(self, keys: Sequence[AdapterKey]) -> None:
        """These have been brought into the arena."""
        ...

    def adapter_loaded(self, tier: str, seconds: float) -> None:
        """One came so fast from "disk" to host memory, or from the "host" to the arena."""
        ...

    def adapters_moved(self, news: AdapterNews) -> None: ...

    def stepped(self, step: StepTaken, events: Sequence[Event]) -> None:
        """A step ran, and made this."""
        ...

    def observed(self, now: float) -> Observed: ...

    def steps_after(self, after_s: float) -> list[StepRecord]: ...

    def prompts(self, n: int, rank: Callable[[Whose], int]) -> list[tuple[Whose, Alike]]:
        """How alike the newest prompts are, of the `n` owners that `rank` puts first."""
        ...


class _NotObserved:
    def submitted(self, requests: Sequence[Request]) -> None: ...

    def aborted(self, request_id: str) -> None: ...

    def failed(self, failures: Iterable[RequestFailure]) -> None: ...

    def adapters_placed(self, keys: Sequence[AdapterKey]) -> None: ...

    def adapter_loaded(self, tier: str, seconds: float) -> None: ...

    def adapters_moved(self, news: AdapterNews) -> None: ...

    def stepped(self, step: StepTaken, events: Sequence[Event]) -> None: ...

    def observed(self, now: float) -> Observed:  # noqa: ARG002 (the port's signature)
        return Observed()

    def steps_after(self, after_s: float) -> list[StepRecord]:  # noqa: ARG002
        return []

    def prompts(self, n: int, rank: Callable[[Whose], int]) -> list[tuple[Whose, Alike]]:  # noqa: ARG002
        return []


NOT_OBSERVED: Final[Observer] = _NotObserved()
