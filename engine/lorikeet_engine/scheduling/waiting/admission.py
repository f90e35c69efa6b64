"""Whether a request may join the queue: bounds first, then a prediction of when it would get its first token.

Better refused at once, with a time to come back, than answered too late. Whoever sends more than its share is told so
(429); when nobody's share is at fault the engine says that it is full (503).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lorikeet_engine.errors import ConcurrencyLimited, InvalidRequest, Overloaded, QueueLimited, TenantLimited
from lorikeet_engine.memory.adapters.residency import AdapterResidency, Residency
from lorikeet_engine.memory.kv.manager import KvManager
from lorikeet_engine.scheduling.counters import SchedulerCounters
from lorikeet_engine.scheduling.limits import SchedulerLimits
from lorikeet_engine.scheduling.request import NEVER, Request
from lorikeet_engine.scheduling.waiting.caps import Cap, Caps, soonest_end, soonest_start
from lorikeet_engine.scheduling.waiting.fairness import FairQueue, TenantAccount
from lorikeet_engine.scheduling.waiting.rates import Rates

# A tenant that was refused is heard again below this part of the limit. One limit alone would oscillate, since what is
# refused shortens the queue only a step later (Mooncake, arXiv 2407.00079).
CALM = 0.85
SLOWEST_PACE = 0.1  # of the fair share: a tenant may stand still for a moment without being lost for ever
RETRY_MIN_S, RETRY_MAX_S, JITTER = 1.0, 60.0, 0.2
OWN_LIMITS: dict[str, type[TenantLimited]] = {  # by reason, those that the tenant's own requests are to blame for
    "tenant_concurrency": ConcurrencyLimited,
    "tenant_waiting": QueueLimited,
    "tenant_queue": TenantLimited,
    "ttft_tenant": TenantLimited,
}
GOLDEN = 0.6180339887498949  # its multiples spread evenly over [0, 1): jitter without randomness


@dataclass(frozen=True, slots=True)
class Prediction:
    """Seconds to the first token, and what most of them are spent on (one of `errors.REFUSAL_REASONS`)."""

    seconds: float
    reason: str


class AdmissionGate:
    """Says yes, or raises."""

    def __init__(
        self,
        limits: SchedulerLimits,
        *,
        queue: FairQueue,
        kv: KvManager,
        residency: AdapterResidency,
        rates: Rates,
        counters: SchedulerCounters,
    ) -> None:
        self._limits = limits
        self._queue = queue
        self._kv = kv
        self._residency = residency
        self._rates = rates
        self._counters = counters
        self.caps = Caps()

    def check_caps(self, caps: Sequence[Cap], now: float) -> None:
        """Raise if a subject has as many requests here as it may have, or as many of them wait as may wait.

        Raises:
            ConcurrencyLimited, QueueLimited: a cap is reached; where it is 0, waiting does not help.
        """
        excess = self.caps.excess(caps)
        if excess is None:
            return
        if excess.reason == "tenant_waiting":
            start = soonest_start(excess.presence)
            late_s = 0.0 if start is None else start - now
        else:
            steps = soonest_end(excess.presence)
            late_s = self.queue_s() if steps is None else steps * self._rates.step_s(0)
        late_s = max(late_s, RETRY_MIN_S / (1.0 - JITTER))  # whatever the jitter, not before RETRY_MIN_S
        self._refuse(excess.reason, excess.detail, late_s, helps=excess.allowed > 0)

    def check_deadline(
        self, requests: Sequence[Request], account: TenantAccount, now: float, *, started_tokens: int
    ) -> None:
        """Raise unless all of one submit would be in time; sets their predicted time to the first token.

        Args:
            requests: with equal prompts; only the first computes its prompt, the others fork from it.
            started_tokens: prompt tokens that running requests have still to compute.

        Raises:
            TenantLimited: the tenant's own work would make this late.
            Overloaded: everybody's work, the adapter or the KV pool would make this late.
        """
        prediction = self.predict(requests[0], account, now, started_tokens=started_tokens)
        for request in requests:
            request.predicted_ttft_s = prediction.seconds
        if self._limits.ttft_deadline_s == NEVER:
            return
        account.margin.relax(now)
        is_certain = self._rates.is_idle and not self._queue.n_waiting  # nobody is there to be wrong about
        limit = self._limits.ttft_deadline_s - (0.0 if is_certain else account.margin.seconds)
        if prediction.seconds <= limit * (CALM if account.is_shedding else 1.0):
            account.is_shedding = False
            return
        account.is_shedding = True
        late_s = prediction.seconds - limit * CALM
        reason = prediction.reason
        if reason == "ttft_engine" and self._is_greedy(account):
            reason = "ttft_tenant"
        self._refuse(reason, f"the first token is expected in {prediction.seconds:.1f} s", late_s)

    def predict(self, request: Request, account: TenantAccount, now: float, *, started_tokens: int) -> Prediction:
        """Time to the first token if the request joined now (engine-design 3.5)."""
        n_own = request.n_expected
        if account.waiting:
            queue_s = self._behind_own_s(account, now)
        else:
            queue_s = self._first_of_tenant_s(account, started_tokens)
        wait, reason = max(
            (queue_s, "ttft_engine"), (self._load_s(request, now), "ttft_adapter"), (self._kv_wait(n_own), "ttft_kv")
        )
        return Prediction(wait + self._rates.prefill_s(n_own), reason)

    def _first_of_tenant_s(self, account: TenantAccount, started_tokens: int) -> float:
        """Seconds until it is the turn of a tenant with nothing in the queue.

        Its turn comes as soon as every other tenant has had one, so it waits for a request or so of each of them, more
        of the heavier ones, and for all of the queue at most.
        """
        queue, others = self._queue, self._queue.active_weight(account) - account.weight
        one_each = others / account.weight * queue.waiting_tokens / max(1, queue.n_waiting)
        return (min(one_each, queue.waiting_tokens) + started_tokens) / self._rates.prompt_tokens_s

    def _behind_own_s(self, account: TenantAccount, now: float) -> float:
        """Seconds until it is the turn of one more request of a tenant whose requests wait already.

        It goes on at the pace it has had: that tells best what the others leave to it. As long as that is not known it
        is its share of everything; or what the others do not use, if none of them waits.
        """
        account.take_pace(now)
        everything = self._rates.prompt_tokens_s
        share = everything * account.weight / self._queue.active_weight(account)
        if account.pace:
            pace = max(account.pace, SLOWEST_PACE * share)
        elif self._queue.waiting_tokens > account.waiting_tokens:
            pace = share
        else:
            pace = max(share, everything - self._rates.used_tokens_s)
        return account.waiting_tokens / pace

    def _is_greedy(self, account: TenantAccount) -> bool:
        """Whether the tenant fills more than its share of the queue, so that the others are not to blame."""
        if not account.waiting:
            return False
        others = self._queue.waiting_tokens - account.waiting_tokens
        weight_of_others = self._queue.active_weight(account) - account.weight
        return not weight_of_others or account.waiting_tokens / account.weight > others / weight_of_others

    def queue_s(self) -> float:
        """Seconds until everything that waits now has been computed."""
        return self._queue.waiting_tokens / self._rates.prompt_tokens_s

    def check_bounds(self, n_requests: int, n_tokens: int, account: TenantAccount) -> None:
        """Raise unless so many requests, with `n_tokens` prompt tokens between them, have room in the queue.

        Raises:
            InvalidRequest: the queue could never hold them.
            TenantLimited: the tenant's share of the queue is full.
            Overloaded: the queue is full.
        """
        limits, queue = self._limits, self._queue
        share = limits.tenant_queue_share
        if n_requests > limits.max_queued_requests:
            raise InvalidRequest(f"the queue holds {limits.max_queued_requests} answers, not {n_requests}", param="n")
        if account.waiting and (  # one submit always fits, whatever the share
            len(account.waiting) + n_requests > share * limits.max_queued_requests
            or account.waiting_tokens + n_tokens > share * limits.max_queued_tokens
        ):
            self._refuse("tenant_queue", f"{len(account.waiting)} of its requests wait already")
        if queue.n_waiting + n_requests > limits.max_queued_requests:
            self._refuse("engine_queue", f"{queue.n_waiting} requests wait")
        if queue.n_waiting and queue.waiting_tokens + n_tokens > limits.max_queued_tokens:
            self._refuse("engine_tokens", f"{queue.waiting_tokens} prompt tokens wait")

    def _load_s(self, request: Request, now: float) -> float:
        """Seconds until its adapter is in host memory."""
        if request.adapter is None or self._residency.state(request.adapter) not in (None, Residency.LOADING):
            return 0.0
        return self._residency.expected_load_s(now)

    def _kv_wait(self, n_tokens: int) -> float:
        missing = self._kv.blocks_for(n_tokens + 1) - self._kv.n_available
        if missing <= 0 or not self._rates.blocks_s:
            return 0.0
        return missing / self._rates.blocks_s

    def _refuse(self, reason: str, detail: str, late_s: float | None = None, *, helps: bool = True) -> None:
        """`helps`: whether waiting does."""
        self._counters.refusals[reason] += 1
        if late_s is None:
            late_s = self.queue_s()
        jitter = 1.0 + JITTER * (2.0 * (self._counters.refusals[reason] * GOLDEN % 1.0) - 1.0)
        retry_after_s = min(max(late_s, RETRY_MIN_S), RETRY_MAX_S) * jitter if helps else None
        if own := OWN_LIMITS.get(reason):
            raise own(f"your own limit: {detail}", retry_after_s=retry_after_s, reason=reason)
        cause = "the adapter is loading" if reason == "ttft_adapter" else "the engine is full"
        raise Overloaded(f"{cause}: {detail}", retry_after_s=retry_after_s, reason=reason)
