"""Iteration-level scheduling: which tokens of which requests the next step computes.

First come, first served. Decodes run in every step; prompts are computed in chunks with what is left of the token
budget; new requests join whenever there is room. A request waits its turn at the first thing that only time gives
back (KV blocks, a seat, room in the arena); only an adapter that is still being read lets others pass.

Pure Python: no torch, no clock, no I/O. Plans go out, results come back through `commit`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from lorikeet_engine.errors import ContextLengthExceeded, EngineError, EngineFailure, InvalidRequest, Overloaded
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.adapter_residency import AdapterResidency, Placement, Residency
from lorikeet_engine.memory.kv_manager import KvManager
from lorikeet_engine.memory.ledger import Owner
from lorikeet_engine.scheduling.plan import Phase, PlanRow, StepPlan, StepResult
from lorikeet_engine.scheduling.request import FinishReason, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerLimits:
    """The knobs of `EngineConfig` that deciding needs, with automatic values resolved."""

    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_adapters_per_step: int
    max_queued_requests: int
    eos_token_ids: frozenset[int]
    vocab: int


@dataclass(frozen=True, slots=True)
class TokenOutput:
    """One new token of a request; `finish_reason` is set on its last."""

    request_id: str
    token: int
    finish_reason: FinishReason | None


@dataclass(frozen=True, slots=True)
class RequestFailure:
    """A request that ended with an error."""

    request_id: str
    error: EngineError


class Scheduler:
    """Owns every request from `submit` to its end.

    Every way out (finish, abort, failure) goes through `_release`, which gives back blocks and pin exactly once.
    """

    def __init__(self, limits: SchedulerLimits, kv: KvManager, residency: AdapterResidency) -> None:
        self._limits = limits
        self._kv = kv
        self._residency = residency
        self._waiting: dict[str, Request] = {}
        self._running: dict[str, Request] = {}
        self._step_id = 0

    @property
    def n_waiting(self) -> int:
        return len(self._waiting)

    @property
    def n_running(self) -> int:
        return len(self._running)

    def submit(self, request: Request) -> None:
        """Queue a request.

        Raises:
            InvalidRequest: no prompt, a token outside the vocabulary, `max_tokens` below 1, or an id that is in use.
            ContextLengthExceeded: prompt and `max_tokens` exceed the context, or the whole KV pool.
            Overloaded: the queue is full.
        """
        limits = self._limits
        if not request.prompt:
            raise InvalidRequest("the prompt has no tokens", param="prompt")
        if not all(0 <= token < limits.vocab for token in request.prompt):
            raise InvalidRequest(f"the prompt has a token id outside 0 … {limits.vocab - 1}", param="prompt")
        if request.max_tokens < 1:
            raise InvalidRequest(f"max_tokens is {request.max_tokens}; it must be at least 1", param="max_tokens")
        if request.request_id in self._waiting or request.request_id in self._running:
            raise InvalidRequest(f"request id {request.request_id} is in use")
        if request.n_total > limits.max_model_len or not self._kv.could_ever_hold(request.n_total):
            raise ContextLengthExceeded(
                f"prompt ({len(request.prompt)} tokens) plus max_tokens ({request.max_tokens}) exceeds the context "
                f"of {limits.max_model_len} tokens",
                param="max_tokens",
            )
        if len(self._waiting) >= limits.max_queued_requests:
            raise Overloaded(f"{len(self._waiting)} requests are waiting; the queue is full")
        self._waiting[request.request_id] = request

    def abort(self, request_id: str) -> bool:
        """Drop a request wherever it is; false when it is gone already."""
        if self._waiting.pop(request_id, None):
            return True
        request = self._running.get(request_id)
        if request:
            self._release(request)
        return request is not None

    def is_waiting_for(self, key: AdapterKey) -> bool:
        return any(request.adapter == key for request in self._waiting.values())

    def take_waiting_for(self, key: AdapterKey) -> list[str]:
        """Drop and return the requests that wait for an adapter (it could not be loaded)."""
        ids = [request.request_id for request in self._waiting.values() if request.adapter == key]
        for request_id in ids:
            del self._waiting[request_id]
        return ids

    def plan(self) -> StepPlan | None:
        """The next step, or None when nothing can run now."""
        budget = self._limits.max_num_batched_tokens
        chunks: list[tuple[Request, int]] = [(r, 1) for r in self._running.values() if not r.in_prefill]
        budget -= len(chunks)
        placements: list[Placement] = []
        self._want_adapters()
        started = [request for request in self._running.values() if request.in_prefill]
        candidates = chain(started, self._admit(placements))
        while budget > 0 and (request := next(candidates, None)):  # asked only with budget left: asking admits
            chunks.append((request, min(budget, request.n_left_to_compute)))
            budget -= chunks[-1][1]
        if not chunks:
            return None
        self._step_id += 1
        rows = [self._row(request, n_tokens) for request, n_tokens in chunks]
        rows.sort(key=_row_order)  # stable, so arrival decides inside an adapter
        return StepPlan(self._step_id, tuple(rows), tuple(placements))

    def commit(self, plan: StepPlan, result: StepResult) -> list[TokenOutput | RequestFailure]:
        """Take over what the step did; requests that were aborted meanwhile are passed over."""
        outputs: list[TokenOutput | RequestFailure] = []
        for row in plan.rows:
            request = self._running.get(row.request_id)
            if request is None:
                continue
            request.n_computed += len(row.token_ids)
            if not row.samples:
                continue
            token = result.sampled.get(row.request_id)
            if token is None:
                self._release(request)
                outputs.append(RequestFailure(row.request_id, EngineFailure("the model's logits are not finite")))
                continue
            request.output.append(token)
            finish_reason = self._finish_reason(request, token)
            outputs.append(TokenOutput(row.request_id, token, finish_reason))
            if finish_reason:
                self._release(request)
        return outputs

    def fail(self, plan: StepPlan) -> list[str]:
        """The step failed: drop all of its requests and return their ids."""
        failed = [row.request_id for row in plan.rows if row.request_id in self._running]
        for request_id in failed:
            self._release(self._running[request_id])
        return failed

    def _admit(self, placements: list[Placement]) -> Iterator[Request]:
        """Start waiting requests, one each time the caller asks; adapters to place are added on the way."""
        for request in list(self._waiting.values()):
            if len(self._running) >= self._limits.max_num_seqs or not self._kv.can_admit(request.n_total):
                return
            if request.adapter:
                if self._residency.state(request.adapter) in (None, Residency.LOADING):
                    continue
                if not self._seat_adapter(request.adapter, placements):
                    return
            del self._waiting[request.request_id]
            self._running[request.request_id] = request
            digest = request.adapter.digest if request.adapter else ""
            self._kv.admit(request.request_id, Owner(request.tenant, digest), request.n_total)
            yield request

    def _want_adapters(self) -> None:
        """Start the adapters of waiting requests on their way, first come first, as far as there is room to load."""
        for request in self._waiting.values():
            if not self._residency.has_room_to_load:
                return
            if request.adapter:
                self._residency.want(request.adapter)

    def _seat_adapter(self, key: AdapterKey, placements: list[Placement]) -> bool:
        """Pin the adapter in the arena; false when the step's cap of adapters or the arena's room does not allow it.

        Every running request counts for the cap, so that a prompt half way through its chunks is never left out.
        """
        in_step = {request.adapter for request in self._running.values() if request.adapter}
        if len(in_step | {key}) > self._limits.max_adapters_per_step:
            return False
        if self._residency.state(key) is Residency.HOST:
            placement = self._residency.place(key)
            if placement is None:
                return False
            placements.append(placement)
        self._residency.pin(key)
        return True

    def _row(self, request: Request, n_tokens: int) -> PlanRow:
        start, stop = request.n_computed, request.n_computed + n_tokens
        return PlanRow(
            request_id=request.request_id,
            phase=Phase.PREFILL if request.in_prefill else Phase.DECODE,
            token_ids=request.tokens(start, stop),
            start=start,
            block_table=self._kv.grow(request.request_id, stop),
            adapter=request.adapter,
            extent=self._residency.base(request.adapter) if request.adapter else -1,
            samples=stop == len(request.prompt) + len(request.output),
            sampling=request.sampling,
            n_generated=len(request.output),
        )

    def _finish_reason(self, request: Request, token: int) -> FinishReason | None:
        if token in self._limits.eos_token_ids:
            return FinishReason.STOP
        if len(request.output) >= request.max_tokens:
            return FinishReason.LENGTH
        return None

    def _release(self, request: Request) -> None:
        del self._running[request.request_id]
        self._kv.release(request.request_id)
        if request.adapter:
            self._residency.unpin(request.adapter)


def _row_order(row: PlanRow) -> tuple[int, bool, AdapterKey | tuple[()]]:
    return (row.phase, row.adapter is None, row.adapter or ())
