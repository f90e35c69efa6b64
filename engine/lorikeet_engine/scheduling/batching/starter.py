"""Taking a waiting request into the batch: its KV blocks, its adapter, its place in the books; all of it or nothing.

Four ways in: computed from the start, behind a prefix that is cached, as a fork of a running request with the same
prompt, or back from host memory.
"""

from __future__ import annotations

from enum import Enum, auto

from lorikeet_engine.memory.kv.manager import KvManager
from lorikeet_engine.memory.kv.prefix_index import PrefixHit
from lorikeet_engine.memory.ledger import Owner
from lorikeet_engine.scheduling.batching.adapter_gate import AdapterGate, AdapterWait
from lorikeet_engine.scheduling.batching.batch import Batch
from lorikeet_engine.scheduling.batching.running_set import RunningSet
from lorikeet_engine.scheduling.costing import Costing
from lorikeet_engine.scheduling.counters import SchedulerCounters
from lorikeet_engine.scheduling.events import Admitted
from lorikeet_engine.scheduling.limits import SchedulerLimits, share_of
from lorikeet_engine.scheduling.plan import BlockCopy
from lorikeet_engine.scheduling.request import NEVER, Request, Stage
from lorikeet_engine.scheduling.waiting.caps import Caps
from lorikeet_engine.scheduling.waiting.fairness import Prices
from lorikeet_engine.scheduling.waiting.room import WaitingRoom

WATERMARK = 0.03  # of the KV pool: kept free for those who run when somebody is admitted
MAX_DEFERRALS = 8  # steps that a request waits for another one to compute their common prefix


class Outcome(Enum):
    """What came of trying to start a request."""

    STARTED = auto()
    NO_KV = auto()
    NO_ADAPTER = auto()
    OWN_LIMIT = auto()  # its tenant's share is used up
    NO_BUDGET = auto()  # what is left of the step is too little for it to begin
    DEFERRED = auto()  # another request is computing its prefix right now


class Starter:
    """Moves requests from the waiting room into the running set."""

    def __init__(
        self,
        limits: SchedulerLimits,
        *,
        kv: KvManager,
        adapters: AdapterGate,
        room: WaitingRoom,
        running: RunningSet,
        prices: Prices,
        caps: Caps,
        counters: SchedulerCounters,
        costing: Costing,
    ) -> None:
        self._kv = kv
        self._adapters = adapters
        self._room = room
        self._running = running
        self._prices = prices
        self._caps = caps
        self._counters = counters
        self._costing = costing
        self._chunks = limits.enable_chunked_prefill
        self._watermark = max(1, int(WATERMARK * kv.n_usable))
        self._max_seats = max(1, int(limits.tenant_seat_share * limits.max_num_seqs))
        self._kv_share_bytes = share_of(kv.ledger.capacity, limits.tenant_kv_share)

    def start(self, request: Request, batch: Batch, now: float) -> Outcome:
        """Start `request` if everything it needs is there; if not, nothing changes and it says what is missing."""
        if request.account.n_running >= self._max_seats:
            return Outcome.OWN_LIMIT
        kv, n_tokens = self._kv, len(request.tokens) + 1
        hit: PrefixHit | None = None
        parent: Request | None = None
        if request.stage is Stage.SWAPPED:
            n_needed = kv.n_needed_to_return(request.request_id, n_tokens)
        elif not request.was_admitted and (parent := self._running.parent_of(request)):
            if parent.n_computed < request.n_prompt or parent.admitted_step == batch.step_id:
                return Outcome.DEFERRED  # what came back from host memory just now can be copied in the next step
            n_needed = kv.blocks_for(n_tokens) - (request.n_prompt - 1) // kv.block_size
        else:
            hit = kv.lookup(request.chain, len(request.tokens))
            if self._shall_wait_for_another(request, hit):
                return Outcome.DEFERRED
            if not self._can_begin(len(request.tokens) - len(hit.blocks) * kv.block_size, batch):
                return Outcome.NO_BUDGET
            n_needed = kv.n_needed(n_tokens, hit)
        if kv.ledger.in_use_of(request.tenant) + n_needed * kv.block_bytes > self._kv_share_bytes:
            return Outcome.OWN_LIMIT
        if n_needed + (self._watermark if self._running else 0) > kv.n_available:
            return Outcome.NO_KV
        place = self._adapters.admit(request, now)
        if isinstance(place, AdapterWait):
            return Outcome.OWN_LIMIT if place is AdapterWait.SHARE else Outcome.NO_ADAPTER
        if place is not None:
            batch.placements.append(place)
        if hit is not None:
            self._begin(request, hit, n_tokens)
        elif parent is not None:
            self._fork(request, parent, n_tokens, batch)
        else:
            self._return_from_host(request, n_tokens, batch)
        self._enter(request, batch, now)
        self._costing.enter(request, is_placing=place is not None)
        return Outcome.STARTED

    def _can_begin(self, n_left: int, batch: Batch) -> bool:
        """Whether the step has budget for a first chunk; a request without one would hold memory for nothing."""
        return n_left <= batch.budget or (self._chunks and batch.budget >= self._kv.block_size)

    def _shall_wait_for_another(self, request: Request, hit: PrefixHit) -> bool:
        """Whether a running request is computing the first block that is missing: in some steps it will be there."""
        if request.was_admitted or request.n_deferrals >= MAX_DEFERRALS:
            return False
        if self._kv.in_progress(request.chain, len(hit.blocks)) is None:
            return False
        request.n_deferrals += 1
        return True

    def _begin(self, request: Request, hit: PrefixHit, n_tokens: int) -> None:
        kv, counters = self._kv, self._counters
        kv.admit(request.request_id, _owner(request), n_tokens, request.chain, hit)
        n_hit = len(hit.blocks) * kv.block_size
        request.n_computed = request.n_scheduled = n_hit
        if request.was_admitted:
            counters.recomputed_hits += n_hit
            counters.recomputed_tokens += max(0, request.n_lost - n_hit)
            return
        digest = request.adapter.digest if request.adapter else ""
        counters.count_prefix((request.tenant, digest), n_tokens=request.n_prompt, n_hit=n_hit)
        if hit.reason is not None:
            counters.misses[hit.reason] += 1
        self._charge_cached(request)

    def _fork(self, request: Request, parent: Request, n_tokens: int, batch: Batch) -> None:
        """Share the parent's full blocks of the prompt; the last token is computed again, for logits of its own."""
        n_shared = request.n_prompt - 1
        pairs = self._kv.fork(parent.request_id, request.request_id, _owner(request), n_shared, n_tokens)
        assert pairs is not None, "room was counted before"
        batch.copies += [BlockCopy(source, target) for source, target in pairs]
        batch.copying.append(request)
        request.n_computed = request.n_scheduled = n_shared
        self._charge_cached(request)

    def _return_from_host(self, request: Request, n_tokens: int, batch: Batch) -> None:
        back = self._kv.swap_in(request.request_id, n_tokens)
        assert back is not None, "room was counted before"
        batch.swap_ins += [BlockCopy(host, device) for host, device in back.copies]
        batch.copying.append(request)
        self._counters.swap_bytes["in"] += len(back.copies) * self._kv.block_bytes
        request.cost.swap_bytes += len(back.copies) * self._kv.block_bytes
        self._counters.recomputed_tokens += max(0, request.n_computed - back.n_computed)
        request.n_computed = request.n_scheduled = back.n_computed

    def _charge_cached(self, request: Request) -> None:
        request.account.charge(self._prices.cached * request.n_computed)
        request.n_charged = request.n_computed

    def end_adapter_wait(self, request: Request, now: float) -> None:
        """It does not wait for its adapter, or not for that alone, any more."""
        if request.adapter and request.adapter_wait_since_s < NEVER:
            waited_s = now - request.adapter_wait_since_s
            self._counters.count_adapter_wait(request.adapter, waited_s)
            request.adapter_wait_s += waited_s
            request.adapter_wait_since_s = NEVER

    def _enter(self, request: Request, batch: Batch, now: float) -> None:
        self._running.add(request)
        self._room.remove(request)
        request.account.n_running += 1
        request.stage = Stage.RUNNING
        request.admitted_step = batch.step_id
        request.blocked_since_s = NEVER
        self.end_adapter_wait(request, now)
        if not request.was_admitted:
            if not request.siblings.has_begun:
                self._caps.begin(request.siblings)
            request.was_admitted = request.siblings.has_begun = True
            queue_s = now - request.arrival_s
            batch.admissions.append(Admitted(request.request_id, request.n_computed, queue_s, request.adapter_wait_s))


def _owner(request: Request) -> Owner:
    return Owner(request.tenant, request.adapter.digest if request.adapter else "")
