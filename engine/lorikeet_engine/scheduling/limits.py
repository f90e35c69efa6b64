"""The knobs of `EngineConfig` that deciding needs, with automatic values resolved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from lorikeet_engine.scheduling.request import NEVER

PreemptionMode = Literal["auto", "swap", "recompute"]

BARRIER_AFTER_S, AGING_S = 3.0, 30.0
IDLE_CREDIT = 1024.0  # an ordinary prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerLimits:
    """Limits and policies; times in seconds.

    Attributes:
        cache_root: what the KV cache depends on besides tenant and adapter: model digest and KV format.
        ttft_deadline_s: a request that cannot get its first token within it is refused, or dropped from the queue.
        tenant_*_share: what one tenant may take of the queue, of the seats, of the KV pool, of the arena.
        barrier_after_s: a request that memory kept waiting for so long becomes the barrier: nothing that would delay
            it further is admitted before it.
        aging_s: a request that waited so long, for whatever reason, becomes the barrier too. Not below the deadline,
            or the oldest requests of a tenant that sends too much would go before everybody else's.
        locality_quantum: virtual tokens of work that may go before the least served tenant's because its adapters are
            in the batch already; 0 = none.
        idle_credit: virtual tokens by which a tenant that was idle may be ahead of the others when it comes back.
    """

    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_adapters_per_step: int
    max_queued_requests: int
    eos_token_ids: frozenset[int]
    vocab: int
    cache_root: tuple[str, str] = ("", "")
    max_queued_tokens: int = 1 << 62
    enable_chunked_prefill: bool = True
    preemption: PreemptionMode = "auto"
    ttft_deadline_s: float = NEVER
    tenant_queue_share: float = 1.0
    tenant_seat_share: float = 1.0
    tenant_kv_share: float = 1.0
    tenant_arena_share: float = 1.0
    barrier_after_s: float = 3.0
    aging_s: float = NEVER
    locality_quantum: float = 0.0
    idle_credit: float = 0.0


class Knobs(Protocol):
    """Where the operator's values come from: `EngineConfig`, or the description of a simulated engine."""

    @property
    def max_num_seqs(self) -> int: ...
    @property
    def max_num_batched_tokens(self) -> int: ...
    @property
    def max_adapters_per_step(self) -> int: ...
    @property
    def max_queued_requests(self) -> int: ...
    @property
    def max_queued_tokens(self) -> int: ...
    @property
    def enable_chunked_prefill(self) -> bool: ...
    @property
    def preemption(self) -> PreemptionMode: ...
    @property
    def ttft_deadline(self) -> float: ...
    @property
    def tenant_queue_share(self) -> float: ...
    @property
    def tenant_seat_share(self) -> float: ...
    @property
    def tenant_kv_share(self) -> float: ...
    @property
    def tenant_arena_share(self) -> float: ...


def limits_of(
    knobs: Knobs,
    *,
    max_model_len: int,
    eos_token_ids: frozenset[int],
    vocab: int,
    cache_root: tuple[str, str],
    is_local_first: bool = True,
) -> SchedulerLimits:
    """The limits of an engine with these knobs; a deadline of 0 is none. The locality quantum is one step's budget."""
    deadline_s = knobs.ttft_deadline or NEVER
    return SchedulerLimits(
        max_model_len=max_model_len,
        max_num_seqs=knobs.max_num_seqs,
        max_num_batched_tokens=knobs.max_num_batched_tokens,
        max_adapters_per_step=knobs.max_adapters_per_step,
        max_queued_requests=knobs.max_queued_requests,
        max_queued_tokens=knobs.max_queued_tokens,
        eos_token_ids=eos_token_ids,
        vocab=vocab,
        cache_root=cache_root,
        enable_chunked_prefill=knobs.enable_chunked_prefill,
        preemption=knobs.preemption,
        ttft_deadline_s=deadline_s,
        tenant_queue_share=knobs.tenant_queue_share,
        tenant_seat_share=knobs.tenant_seat_share,
        tenant_kv_share=knobs.tenant_kv_share,
        tenant_arena_share=knobs.tenant_arena_share,
        barrier_after_s=min(BARRIER_AFTER_S, deadline_s / 2),
        aging_s=AGING_S if deadline_s == NEVER else max(AGING_S, deadline_s),
        idle_credit=IDLE_CREDIT,
        locality_quantum=float(knobs.max_num_batched_tokens) if is_local_first else 0.0,
    )


def share_of(capacity: float, share: float) -> float:
    """What a tenant may take of a pool. A share of 1 is no limit of its own: then only the pool can be too small."""
    return share * capacity if share < 1 else float("inf")
