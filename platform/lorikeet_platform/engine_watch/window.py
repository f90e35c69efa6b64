"""What was seen of an engine over some time. Totals are differences of two readings; knows no rules and no HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lorikeet_engine.cost import StepWork
from lorikeet_engine.cost_vector import COSTS, CostVector
from lorikeet_engine.stats import AdapterUse, EngineStats, Histogram, StepSample, WorkDone

NO_WORK = WorkDone(flops=0.0, lora_flops=0.0, read_bytes=0.0, write_bytes=0.0, lora_bytes=0.0)


@dataclass(frozen=True, slots=True)
class Reading:
    """One sample: when it was taken (unix seconds), and by the engine's clock."""

    at: float
    engine_s: float
    stats: EngineStats


@dataclass(frozen=True, slots=True)
class Spread:
    """How often something took how long within a window; `counts` as in `stats.Histogram`."""

    counts: Sequence[int]
    sum_s: float

    @property
    def count(self) -> int:
        return sum(self.counts)

    @property
    def mean_s(self) -> float:
        return self.sum_s / self.count if self.count else 0.0


@dataclass(frozen=True, slots=True)
class Window:
    """From one reading to a later one of the same engine process.

    Attributes:
        steps: those of the window that are remembered, oldest first; a fast engine's reach back less far.
        readings: all that were taken, the first and the last among them.
    """

    before: EngineStats
    after: EngineStats
    seconds: float
    steps: Sequence[StepSample] = ()
    readings: Sequence[Reading] = field(default=())

    @property
    def n_steps(self) -> int:
        return self.after.steps_total - self.before.steps_total

    @property
    def prompt_tokens(self) -> int:
        return self.after.prompt_tokens_total - self.before.prompt_tokens_total

    @property
    def generated_tokens(self) -> int:
        return self.after.generated_tokens_total - self.before.generated_tokens_total

    @property
    def costs(self) -> CostVector:
        return CostVector(
            **{name: getattr(self.after.costs, name) - getattr(self.before.costs, name) for name in COSTS}
        )

    @property
    def preemptions(self) -> dict[str, int]:
        return grown(self.before.preemptions.by_mode, self.after.preemptions.by_mode)

    @property
    def refusals(self) -> dict[str, int]:
        return grown(self.before.refusals, self.after.refusals)

    @property
    def misses(self) -> dict[str, int]:
        return grown(self.before.prefix.misses, self.after.prefix.misses)

    @property
    def loads(self) -> dict[str, int]:
        return grown(self.before.adapter_traffic.loads, self.after.adapter_traffic.loads)

    @property
    def evictions(self) -> dict[str, int]:
        return grown(self.before.adapter_traffic.evictions, self.after.adapter_traffic.evictions)

    def steps_of(self, kind: str) -> int:
        return self.after.steps_by_kind.get(kind, 0) - self.before.steps_by_kind.get(kind, 0)

    def step_seconds_of(self, kind: str) -> float:
        return self.after.step_seconds_by_kind.get(kind, 0.0) - self.before.step_seconds_by_kind.get(kind, 0.0)

    def work_of(self, kind: str) -> StepWork:
        return work_between(self.before, self.after, kind)

    @property
    def work(self) -> StepWork:
        return sum((self.work_of(kind) for kind in self.after.work_by_kind), StepWork())

    def spread(self, measure: str, *, by: str = "kind", label: str | None = None) -> Spread:
        """Of one label, or of all labels of `by` together."""
        newer = _matching(self.after.histograms, measure, by, label)
        older = _matching(self.before.histograms, measure, by, label)
        width = max((len(histogram.counts) for histogram in newer), default=0)
        counts = [
            sum(histogram.counts[i] for histogram in newer) - sum(histogram.counts[i] for histogram in older)
            for i in range(width)
        ]
        # Labels may join "other" in between, so a single one can have shrunk.
        counts = [max(0, count) for count in counts]
        seconds = sum(histogram.sum_s for histogram in newer) - sum(histogram.sum_s for histogram in older)
        return Spread(counts, max(0.0, seconds))

    def adapter_uses(self) -> list[AdapterUse]:
        """What each of the busiest adapters did; one that was not among them at the beginning is counted in full."""
        older = {(use.tenant, use.digest): use for use in self.before.adapter_uses}
        return [_used_since(use, older.get((use.tenant, use.digest))) for use in self.after.adapter_uses]


def grown(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """By how much each total has grown, without those that have not."""
    differences = {name: n - before.get(name, 0) for name, n in after.items()}
    return {name: n for name, n in differences.items() if n > 0}


def work_between(before: EngineStats, after: EngineStats, kind: str) -> StepWork:
    old, new = before.work_by_kind.get(kind, NO_WORK), after.work_by_kind.get(kind, NO_WORK)
    return StepWork(
        flops=int(new.flops - old.flops),
        lora_flops=int(new.lora_flops - old.lora_flops),
        read_bytes=int(new.read_bytes - old.read_bytes),
        write_bytes=int(new.write_bytes - old.write_bytes),
        lora_bytes=int(new.lora_bytes - old.lora_bytes),
    )


def _matching(histograms: Sequence[Histogram], measure: str, by: str, label: str | None) -> list[Histogram]:
    return [
        histogram
        for histogram in histograms
        if histogram.measure == measure and histogram.by == by and label in (None, histogram.label)
    ]


def _used_since(use: AdapterUse, older: AdapterUse | None) -> AdapterUse:
    if older is None or older.tokens > use.tokens:
        return use
    return AdapterUse(
        tenant=use.tenant,
        digest=use.digest,
        tokens=use.tokens - older.tokens,
        loads=use.loads - older.loads,
        evictions=use.evictions - older.evictions,
        stall_s=use.stall_s - older.stall_s,
        read_bytes=use.read_bytes - older.read_bytes,
        row_flops=use.row_flops - older.row_flops,
    )
