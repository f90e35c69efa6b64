"""Everything that is watched of one engine, kept together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.observing.adapter_uses import AdapterUses, UseCell
from lorikeet_engine.observing.busiest import FORMER, Busiest, Split
from lorikeet_engine.observing.fairness import ServiceWindow
from lorikeet_engine.observing.histogram import Histogram
from lorikeet_engine.observing.latency import LatencyBook, LatencyCell, Owner
from lorikeet_engine.observing.observer import Bins, Observed, StepTaken, Use
from lorikeet_engine.observing.prompt_heads import Alike, PromptHeads, Whose
from lorikeet_engine.observing.steps import StepBook, StepRecord
from lorikeet_engine.scheduling.counters import AdapterNews, TenantLoad
from lorikeet_engine.scheduling.events import Event, RequestFailure
from lorikeet_engine.scheduling.request import Request

NAMED_TENANTS = 50
NAMED_ADAPTERS = 20
TIERS = ("disk", "host")
STEP_KINDS = ("prefill", "decode", "mixed", "copy")


class Observatory:
    """Watches one `EngineLoop`.

    Args:
        tenants: every tenant at work, and what it has received.
        itemsize: what one number of an adapter takes.
    """

    def __init__(
        self,
        *,
        tenants: Callable[[], Sequence[TenantLoad]],
        itemsize: int,
    ) -> None:
        self._tenant_loads = tenants
        by_tenant: Split[str, LatencyCell] = Split(LatencyCell)
        by_adapter: Split[AdapterKey, LatencyCell] = Split(LatencyCell)
        uses: Split[AdapterKey, UseCell] = Split(UseCell)
        self._tenants: Busiest[str] = Busiest(NAMED_TENANTS, (by_tenant,))
        self._adapters: Busiest[AdapterKey] = Busiest(NAMED_ADAPTERS, (by_adapter, uses))
        self._latency = LatencyBook(by_tenant, by_adapter, self._see)
        self._uses = AdapterUses(uses, itemsize=itemsize)
        self._steps = StepBook(STEP_KINDS)
        self._loads = {tier: Histogram() for tier in TIERS}
        self._service = ServiceWindow()
        self._prompts = PromptHeads()
        self._kv_peak_bytes = 0

    # -- what the loop tells -------------------------------------------------------------------------------------------

    def submitted(self, requests: Sequence[Request]) -> None:
        first = requests[0]
        self._latency.begin(requests)
        self._prompts.add((first.tenant, first.adapter.digest if first.adapter else ""), first.prompt)

    def aborted(self, request_id: str) -> None:
        self._latency.end(request_id)

    def failed(self, failures: Iterable[RequestFailure]) -> None:
        for failure in failures:
            self._latency.end(failure.request_id)

    def adapters_placed(self, keys: Sequence[AdapterKey]) -> None:
        self._uses.placed(keys)

    def adapter_loaded(self, tier: str, seconds: float) -> None:
        self._loads[tier].add(seconds)

    def adapters_moved(self, news: AdapterNews) -> None:
        self._uses.evicted(news.evicted)
        self._uses.stalled(news.stalls)

    def stepped(self, step: StepTaken, events: Sequence[Event]) -> None:
        shape = step.shape
        self._latency.take(events, step.end_s)
        self._uses.computed(step.adapters)
        self._steps.add(
            StepRecord(
                step.end_s, step.kind, step.seconds, shape.n_decode, shape.decode_context, shape.n_prefill,
                shape.prefill_pairs, shape.prefill_context, shape.n_sampled, shape.lora_bytes, shape.lora_flops,
                step.running, step.waiting, step.kv_used_bytes,
            )
        )  # fmt: skip
        self._kv_peak_bytes = max(self._kv_peak_bytes, step.kv_used_bytes)
        self._service.look(step.end_s, self._tenant_loads)
        self._tenants.tick(step.end_s)
        self._adapters.tick(step.end_s)

    def _see(self, owner: Owner, n_tokens: int) -> None:
        self._tenants.see(owner.tenant, n_tokens)
        if owner.adapter is not None:
            self._adapters.see(owner.adapter, n_tokens)

    # -- what others ask -----------------------------------------------------------------------------------------------

    def observed(self, now: float) -> Observed:
        return Observed(
            bins=list(self._bins()),
            uses=list(self._adapter_uses()),
            tenants=list(self._tenants.names),
            kv_peak_bytes=self._kv_peak_bytes,
            fairness=self._service.fairness(now),
        )

    def steps_after(self, after_s: float) -> list[StepRecord]:
        return self._steps.after(after_s)

    def prompts(self, n: int, rank: Callable[[Whose], int]) -> list[tuple[Whose, Alike]]:
        return self._prompts.alike(n, rank)

    def _bins(self) -> Iterator[Bins]:
        latency = self._latency
        yield from _bins_by("kind", latency.by_kind.items())
        yield from _bins_by("tenant", latency.tenants.labelled(str))
        yield from _bins_by("adapter", _joined(latency.adapters.labelled(lambda key: key.digest)))
        for kind, histogram in self._steps.by_kind.items():
            yield _bins("step", "kind", kind, histogram)
        for tier, histogram in self._loads.items():
            yield _bins("load", "tier", tier, histogram)

    def _adapter_uses(self) -> Iterator[Use]:
        uses = self._uses.adapters
        for key, cell in uses.named.items():
            yield _use(key.tenant, key.digest, cell)
        yield _use("", "", uses.other)
        if uses.former != UseCell():
            yield _use(FORMER, "", uses.former)


def _bins_by(by: str, cells: Iterable[tuple[str, LatencyCell]]) -> Iterator[Bins]:
    """What has been counted: empty histograms are left out."""
    for label, cell in cells:
        for measure, histogram in cell.histograms():
            if histogram.sum_s or histogram.total:
                yield _bins(measure, by, label, histogram)


def _bins(measure: str, by: str, label: str, histogram: Histogram) -> Bins:
    return Bins(measure, by, label, list(histogram.counts), histogram.sum_s)


def _joined(cells: Iterable[tuple[str, LatencyCell]]) -> Iterable[tuple[str, LatencyCell]]:
    """Two tenants may have one file as their adapter: one label counts for both."""
    joined: dict[str, LatencyCell] = {}
    for label, cell in cells:
        known = joined.get(label)
        if known is None:
            joined[label] = cell
        else:
            joined[label] = both = LatencyCell()
            both.merge(known)
            both.merge(cell)
    return joined.items()


def _use(tenant: str, digest: str, cell: UseCell) -> Use:
    return Use(tenant, digest, cell.tokens, cell.loads, cell.evictions, cell.stall_s, cell.read_bytes, cell.row_flops)
