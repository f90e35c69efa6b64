"""One generation from a parsed body to a settled usage record.

`prepare_*` finds out everything that can be refused without running: the model, the prompt's tokens, the room in the
context. Nothing is recorded until `run`. `run` opens the usage record, starts the generation, and whatever happens
then (an answer, a refusal, a closed connection, a cancelled task) one `finally` ends both; settling goes on by itself.

Database work is synchronous and short; it runs in threads, out of reach of cancellation.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final, NoReturn, TypeVar

import structlog
from sqlalchemy.exc import SQLAlchemyError

from lorikeet_engine.client import EngineClient, EngineInfo, Generation, GenerationRequest
from lorikeet_engine.errors import (
    AdapterDamaged,
    AdapterUnavailable,
    DeadlineExceeded,
    EngineError,
    EngineFailure,
    Overloaded,
    RequestRefused,
)
from lorikeet_platform.auth.api_keys import invalid_api_key
from lorikeet_platform.auth.principal import Principal
from lorikeet_platform.clock import Clock, now_us
from lorikeet_platform.db.session import Database
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.inference.answering import Answering, EndCode
from lorikeet_platform.inference.bounds import answer_tokens, caps_of, check_answers, check_prompt
from lorikeet_platform.inference.running import RunningAnswer, Steps
from lorikeet_platform.inference.schemas import ChatRequest, CompletionRequest, SamplingFields
from lorikeet_platform.limits.gating.gate import LimitGate, Passage
from lorikeet_platform.registry.resolve import ResolvedModel, resolve_model
from lorikeet_platform.telemetry.metrics import GatewayMetrics
from lorikeet_platform.usage.ledger import Outcome
from lorikeet_platform.usage.service import Ticket, UsageService
from lorikeet_platform.usage.settling import Settler

SETTLE_S: Final = 2.0  # after the last answer; what is not on record then is the engine's to tell
WARM_TIMEOUT_S: Final = 10.0  # the caller waits meanwhile

T = TypeVar("T")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request that has come, of a known caller. `mark` tells whose right to be answered has ended since."""

    principal: Principal
    request_id: str
    mark: int


@dataclass(frozen=True, slots=True)
class Call:
    """A request that may run: caller known, version pinned, prompt in tokens. Nothing is recorded yet.

    `user` is what sticky aliases go by, as far as the request says who is asking.
    """

    arrival: Arrival
    passage: Passage
    resolved: ResolvedModel
    user: str | None
    generation: GenerationRequest
    fingerprint: str
    created: int
    route: str
    stream: bool
    include_usage: bool

    @property
    def principal(self) -> Principal:
        return self.arrival.principal

    @property
    def most_tokens(self) -> int:
        """The most that it can use."""
        return len(self.generation.prompt) + self.generation.n * self.generation.max_tokens


class InferenceService:
    """Prepares and runs generations on one engine.

    Args:
        on_damaged: takes out of service whatever of a tenant has a damaged image (tenant id, digest); synchronous.
    """

    def __init__(
        self,
        *,
        db: Database,
        usage: UsageService,
        client: EngineClient,
        base_model: str,
        gate: LimitGate,
        metrics: GatewayMetrics,
        on_damaged: Callable[[str, str], None],
        clock: Clock = now_us,
    ) -> None:
        self._db = db
        self._on_damaged, self._clock = on_damaged, clock
        self._usage = usage
        self._client = client
        self._base_model = base_model
        self._gate, self._metrics = gate, metrics
        self._settler = Settler(usage, client)
        self._answering = Answering()
        self._draining = False

    def arrive(self, principal: Principal, request_id: str) -> Arrival:
        return Arrival(principal, request_id, self._answering.mark())

    async def refuse(self, arrival: Arrival, error: PlatformError) -> NoReturn:
        """What cannot even be read counts for its caller's rate, too (R-20). Raises `error`, or that refusal."""
        passage = await asyncio.to_thread(self._gate.enter, arrival.principal)
        error.headers |= passage.headers
        raise error

    async def prepare_chat(self, arrival: Arrival, body: ChatRequest) -> Call:
        passage, resolved = await self._enter(arrival, body)
        with passage.named_in_refusals():
            messages = [message.for_template() for message in body.messages]
            prompt = await _engine_answer(self._client.encode_chat(messages))
            return self._prepare(arrival, passage, body, resolved, prompt)

    async def prepare_completion(self, arrival: Arrival, body: CompletionRequest) -> Call:
        passage, resolved = await self._enter(arrival, body)
        with passage.named_in_refusals():
            prompt = body.prompt
            if isinstance(prompt, str):
                prompt = await _engine_answer(self._client.encode_text(prompt))
            return self._prepare(arrival, passage, body, resolved, prompt)

    @asynccontextmanager
    async def run(self, call: Call) -> AsyncIterator[RunningAnswer]:
        """Generate, inside an open usage record. Raises PlatformError for what the engine refuses or fails."""
        if (code := self._answering.ended_since(call.arrival.mark, call.principal)) is not None:
            raise refusal_of(code)
        outcome: Outcome = "server_error"
        answer = RunningAnswer(call.resolved, self._steps(call), self._clock)
        with self._metrics.in_flight.track_inprogress():
            opening = asyncio.ensure_future(asyncio.to_thread(self._open_ticket, call))
            try:
                await asyncio.shield(opening)
                await answer.begin()
                yield answer
                outcome = "ok"
            except EngineError as error:
                outcome = _outcome_of(error)
                if isinstance(error, AdapterDamaged):
                    await to_its_end(self._take_out(call.principal.tenant_id, answer.resolved))
                raise platform_error(error) from error
            except asyncio.CancelledError:
                if self.ended_by(asyncio.current_task()) is not None:
                    outcome = "revoked"
                else:
                    outcome = "shed" if self._draining else "client_cancelled"
                raise
            except Exception as error:
                is_gone = isinstance(error, PlatformError) and error.code == "model_not_found"
                outcome = "shed" if is_gone else "server_error"
                raise
            finally:
                await to_its_end(self._settle(call, opening, answer, outcome))

    def track(self, task: asyncio.Task[None], principal: Principal) -> None:
        """`drain` shall wait for this task, and cancel it in the end; `end_running` shall find it."""
        self._answering.add(task, principal)

    def end_running(self, tenant_id: str, key_id: str | None, code: EndCode) -> None:
        """End what is being answered for a key, or for all keys of a tenant, and start nothing more for them.

        Any thread may call; it does not wait.
        """
        self._answering.end(tenant_id, key_id, code)

    def ended_by(self, task: asyncio.Task[None] | None) -> EndCode | None:
        return self._answering.code_of(task)

    @property
    def is_draining(self) -> bool:
        return self._draining

    async def drain(self, timeout_s: float) -> None:
        """Refuse new requests, give the running ones `timeout_s`, then end them with an error to the caller."""
        self._draining = True
        if running := self._answering.tasks:
            await asyncio.wait(running, timeout=timeout_s)
        late = self._answering.tasks
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
        await self._settler.drain(SETTLE_S)
        await asyncio.to_thread(self._gate.close)

    def _steps(self, call: Call) -> Steps:
        tenant_id = call.principal.tenant_id

        async def start(resolved: ResolvedModel) -> Generation:
            return await self._client.generate(replace(call.generation, adapter_digest=resolved.digest))

        async def resolve() -> ResolvedModel:
            return await asyncio.to_thread(self._resolve_in_thread, call.principal, call.resolved.model, call.user)

        async def warm(resolved: ResolvedModel) -> None:
            if resolved.digest is not None:
                await self._client.warm_adapter(tenant_id, resolved.digest, WARM_TIMEOUT_S)

        return Steps(start=start, resolve=resolve, warm=warm)

    async def _take_out(self, tenant_id: str, resolved: ResolvedModel) -> None:
        """A damaged adapter answers nobody else; the caller is told the same whether or not that can be written now."""
        if resolved.digest is not None:
            try:
                await asyncio.to_thread(self._on_damaged, tenant_id, resolved.digest)
            except SQLAlchemyError as error:
                log.error("a damaged adapter is still in service", version=resolved.version_id, exc_info=error)

    async def _enter(self, arrival: Arrival, body: SamplingFields) -> tuple[Passage, ResolvedModel]:
        if self._draining:
            raise PlatformError("draining", "this server is shutting down")
        return await asyncio.to_thread(self._enter_in_thread, arrival.principal, body.model, body.who)

    def _enter_in_thread(self, principal: Principal, model: str, user: str | None) -> tuple[Passage, ResolvedModel]:
        passage = self._gate.enter(principal)
        with passage.named_in_refusals():
            return passage, self._resolve_in_thread(principal, model, user)

    def _resolve_in_thread(self, principal: Principal, model: str, user: str | None) -> ResolvedModel:
        tenant_id, allowed = principal.tenant_id, principal.allowed_adapters
        with self._db.tenant(tenant_id).read() as session:
            return resolve_model(session, tenant_id, model, self._base_model, user=user, allowed_adapters=allowed)

    def _prepare(
        self,
        arrival: Arrival,
        passage: Passage,
        body: SamplingFields,
        resolved: ResolvedModel,
        prompt: tuple[int, ...],
    ) -> Call:
        info, principal = self._engine_info(), arrival.principal
        check_answers(body, principal.limits)
        check_prompt(prompt, body.PROMPT, info)
        generation = GenerationRequest(
            request_id=arrival.request_id,
            tenant=principal.tenant_id,
            weight=principal.weight,
            cache_salt=principal.cache_salt,
            n=body.n,
            prompt=prompt,
            max_tokens=answer_tokens(body, len(prompt), info.max_model_len, principal.limits),
            sampling=body.sampling(),
            stop=body.stop,
            adapter_digest=resolved.digest,
            caps=caps_of(principal),
        )
        return Call(
            arrival=arrival,
            passage=passage,
            resolved=resolved,
            user=body.who,
            generation=generation,
            fingerprint=info.model_digest,
            created=int(time.time()),
            route=body.ROUTE,
            stream=body.stream,
            include_usage=body.stream_options.include_usage,
        )

    def _engine_info(self) -> EngineInfo:
        try:
            return self._client.info
        except EngineError as error:
            raise platform_error(error) from error

    def _open_ticket(self, call: Call) -> Ticket:
        self._gate.admit(call.passage, call.most_tokens)
        try:
            return self._usage.open(
                request_id=call.generation.request_id,
                principal=call.principal,
                resolved=call.resolved,
                route=call.route,
                stream=call.stream,
                n=call.generation.n,
                est_tokens=call.most_tokens,
            )
        except BaseException:
            self._gate.leave(call.passage, 0)
            raise

    async def _settle(
        self, call: Call, opening: asyncio.Future[Ticket], answer: RunningAnswer, outcome: Outcome
    ) -> None:
        with contextlib.suppress(EngineError):  # an engine that is gone has nothing left to stop
            await answer.close()
        usage = answer.usage
        await asyncio.wait([opening])
        if opening.exception() is not None:
            return  # no record was opened, so nothing ran
        self._gate.leave(call.passage, usage.prompt_tokens + usage.completion_tokens)
        self._metrics.count_tokens(
            prompt=usage.prompt_tokens, completion=usage.completion_tokens, cached=usage.cached_tokens
        )
        settlement = opening.result().settlement(
            usage, outcome, answered_by=answer.resolved, first_token_at=answer.first_token_at
        )
        await self._settler.settle(settlement)


def platform_error(error: EngineError) -> PlatformError:
    """What the caller is told of an engine's error; the engine's own failures keep their details to the log."""
    if isinstance(error, EngineFailure):
        log.error("engine failed a request", error=type(error).__name__)
        return PlatformError("internal_error", "the engine failed while working on this request")
    if isinstance(error, AdapterDamaged):
        return PlatformError("integrity_error")
    return PlatformError(error.code, error.message, param=error.param, retry_after_s=error.retry_after_s)


def refusal_of(code: EndCode) -> PlatformError:
    """What is told of an ended right to be answered while nothing was sent yet."""
    return invalid_api_key() if code == "key_revoked" else PlatformError(code)


def _outcome_of(error: EngineError) -> Outcome:
    """What was turned away is no failure of what should have answered; an adapter that cannot be loaded is one."""
    if isinstance(error, DeadlineExceeded):
        return "deadline"
    if isinstance(error, AdapterUnavailable):
        return "server_error"
    return "shed" if isinstance(error, Overloaded | RequestRefused) else "server_error"


async def to_its_end(work: Awaitable[T]) -> T:
    """Await `work` even through cancellations of the calling task; those are raised afterwards."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return task.result()


async def _engine_answer(work: Awaitable[T]) -> T:
    try:
        return await work
    except EngineError as error:
        raise platform_error(error) from error
