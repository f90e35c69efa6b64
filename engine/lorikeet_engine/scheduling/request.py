"""One generation as the engine sees it: token ids in, token ids out, and how far it has come."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from lorikeet_engine.cost_vector import CostVector
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.kv.prefix_index import PrefixChain
from lorikeet_engine.scheduling.plan import SamplingParams

if TYPE_CHECKING:
    from lorikeet_engine.scheduling.waiting.fairness import TenantAccount

NEVER = float("inf")


class FinishReason(StrEnum):
    """Why the engine ended a request; the API's words."""

    STOP = "stop"
    LENGTH = "length"


class Stage(StrEnum):
    """Where a request is in its life."""

    NEW = "new"
    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"  # its blocks were given up; prompt and output are computed again
    SWAPPED = "swapped"  # its blocks lie in host memory
    ENDED = "ended"


@dataclass(slots=True, eq=False)
class Siblings:
    """The requests of one submit. Ids are the callers' and may come again; this is what tells submits apart.

    Attributes:
        has_begun: whether one of them was ever admitted: their answer has begun, and the others belong to it.
        waiting: those that were not admitted yet, in order; the first one's prompt is expected to be computed.
        subjects: for whom they count, once together; `n_left` of them are not over.
    """

    has_begun: bool = False
    waiting: dict[str, Request] = field(default_factory=dict)
    running: dict[str, Request] = field(default_factory=dict)
    subjects: tuple[str, ...] = ()
    n_left: int = 0


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """State of one request. The first group of fields is the caller's, the second the scheduler's.

    Attributes:
        prompt: token ids, at least one.
        weight: the tenant's share of service, relative to other tenants.
        cache_salt: the tenant's secret; separates its prefix cache from everybody else's.
        ignore_eos: it goes on to `max_tokens`, whatever the model says.
        serial: order of arrival.
        account: the tenant's; set when it is submitted.
        siblings: the requests of its submit, which have one prompt; set when it is submitted.
        chain: keys of its full KV blocks; set when it is submitted.
        tokens: prompt and output together; the newest output token is not in the KV cache yet.
        n_expected: prompt tokens that were not in the prefix cache when it was submitted.
        n_scheduled: tokens whose keys and values the planned step writes, `n_computed` included.
        n_computed: tokens whose keys and values a finished step has written.
        n_charged: tokens that its tenant has paid for; what is computed again is not paid for again.
        n_reached: the most tokens that were computed when it stopped running; below them all is computed again.
        n_lost: tokens that were computed and dropped at its last preemption.
        tried_step: the last step that looked at it.
        progressed_s, planned_step: when, and in which step, a part of its prompt was planned last.
        goes_first: whether its prompt made way for others long enough.
        n_deferrals: steps it waited for another request to compute the prefix they share.
        blocked_since_s: when it was first passed over for want of memory or of its adapter.
        adapter_wait_since_s: when it was first passed over for want of its adapter, `adapter_wait_s` all such waits.
        cost: what it was charged for; answers and memory only when it stops running (`scheduling.costing`).
    """

    request_id: str
    tenant: str
    prompt: tuple[int, ...]
    max_tokens: int
    sampling: SamplingParams
    adapter: AdapterKey | None
    weight: float = 1.0
    cache_salt: bytes = b""
    ignore_eos: bool = False

    stage: Stage = Stage.NEW
    serial: int = 0
    arrival_s: float = 0.0
    predicted_ttft_s: float = 0.0
    account: TenantAccount = field(init=False)
    siblings: Siblings = field(init=False)
    chain: PrefixChain = field(init=False)
    n_prompt: int = field(init=False)
    tokens: list[int] = field(init=False)
    n_expected: int = 0
    n_scheduled: int = 0
    n_computed: int = 0
    n_charged: int = 0
    n_reached: int = 0
    n_lost: int = 0
    n_preemptions: int = 0
    n_deferrals: int = 0
    tried_step: int = -1
    admitted_step: int = -1
    was_admitted: bool = False
    progressed_s: float = 0.0
    planned_step: int = -1
    goes_first: bool = False
    blocked_since_s: float = NEVER
    adapter_wait_since_s: float = NEVER
    adapter_wait_s: float = 0.0
    cost: CostVector = field(default_factory=CostVector)

    def __post_init__(self) -> None:
        self.n_prompt = len(self.prompt)
        self.tokens = list(self.prompt)

    @property
    def origin(self) -> tuple[object, ...]:
        """What the choices of one request have in common: they share the blocks that this determines."""
        return self.tenant, self.adapter, self.cache_salt, self.prompt

    @property
    def n_total(self) -> int:
        """Tokens it holds if it runs to `max_tokens`."""
        return self.n_prompt + self.max_tokens

    @property
    def n_output(self) -> int:
        return len(self.tokens) - self.n_prompt

    @property
    def n_left_to_compute(self) -> int:
        return len(self.tokens) - self.n_computed

    @property
    def virtual_finish(self) -> float:
        """Its tenant's counter when the rest of its tokens is computed, as far as is known (`waiting.fairness`)."""
        n_left = self.n_left_to_compute if self.was_admitted else self.n_expected
        return self.account.service + n_left / self.account.weight

    @property
    def decodes(self) -> bool:
        """Whether all that is left to compute is the newest output token."""
        n_tokens = len(self.tokens)
        return n_tokens > self.n_prompt and n_tokens - self.n_computed == 1

    def finish_reason(self, eos_token_ids: frozenset[int]) -> FinishReason | None:
        """Why its newest token is its last; None when it goes on."""
        if self.tokens[-1] in eos_token_ids and not self.ignore_eos:
            return FinishReason.STOP
        return FinishReason.LENGTH if len(self.tokens) >= self.n_total else None
