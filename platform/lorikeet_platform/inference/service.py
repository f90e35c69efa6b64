"""One generation from a parsed body to a settled usage record.

`prepare_*` finds out everything that can be refused without running: the model, the prompt's tokens, the room in the
context. Nothing is recorded until `run`. `run` opens the usage record, starts the generation, and whatever happens
then (an answer, a refusal, a closed connection, a cancelled task) one `finally` ends both; settling goes on by itself.

Database work and tokenising are synchronous; they run in threads of their own, out of reach of cancellation, and no
tenant has more than its part of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NoReturn

import structlog
from sqlalchemy.exc import SQLAlchemyError

from lorikeet_engine.client import EngineClient, Generation, GenerationRequest, Usage
from lorikeet_engine.errors import AdapterDamaged, EngineError
from lorikeet_platform.auth.principal import Principal
from lorikeet_platform.clock import Clock, now_us
from lorikeet_platform.db.session import Database
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.inference.bounds import answer_tokens, caps_of, check_answers, check_prompt
from lorikeet_platform.inference.running.answer import RunningAnswer, Steps
from lorikeet_platform.inference.running.answering import Answering, EndCode
from lorikeet_platform.inference.running.refusals import draining, outcome_of, platform_error, refusal_of
from lorikeet_platform.inference.running.traced import note_answer
from lorikeet_platform.inference.running.turns import FairThreads, to_its_end
from lorikeet_platform.inference.schemas import ChatRequest, CompletionRequest, SamplingFields
from lorikeet_platform.limits.gating.gate import LimitGate, Passage
from lorikeet_platform.registry.resolve import ResolvedModel, resolve_model
from lorikeet_platform.telemetry.metrics import GatewayMetrics
from lorikeet_platform.telemetry.tracing.spans import current_trace
from lorikeet_platform.usage.ledger import Outcome
from lorikeet_platform.usage.service import NotRecorded, Ticket, UsageService
from lorikeet_platform.usage.settling import Settler

SETTLE_S: Final = 2.0  # after the last answer; what is not on record then is the engine's to tell
WARM_TIMEOUT_S: Final = 10.0  # the caller waits meanwhile
# The first look up and compute; the second wait for the database, where one tenant's wait for each other anyway.
PREPARING, PREPARING_OF_TENANT = 8, 4
OPENING, OPENING_OF_TENANT = 16, 4

Encode = Callable[[], tuple[int, ...]]

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
    def operation(self) -> str:
        """What it does, in the words of traces."""
        return "chat" if self.route == ChatRequest.ROUTE else "text_completion"

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
        self._preparing = FairThreads("prepare", n_threads=PREPARING, n_of_tenant=PREPARING_OF_TENANT)
        self._opening = FairThreads("open", n_threads=OPENING, n_of_tenant=OPENING_OF_TENANT)
        self._answering = Answering()
        self._draining = False

    def mark(self) -> int:
        """Of the moment that a request came; see `Arrival`."""
        return self._answering.mark()

    async def refuse(self, arrival: Arrival, error: PlatformError) -> NoReturn:
        """What cannot even be read counts for its caller's rate, too (R-20). Raises `error`, or that refusal.

        Whatever `error` says of the connection, that refusal says as well.
        """
        try:
            passage = await self._enter(arrival)
        except PlatformError as refusal:
            refusal.headers = error.headers | refusal.headers
            raise
        error.headers |= passage.headers
        raise error

    async def count(self, arrival: Arrival) -> None:
        """A request whose caller left before it could be read."""
        with suppress(PlatformError):
            await self._enter(arrival)

    async def prepare_chat(self, arrival: Arrival, body: ChatRequest) -> Call:
        messages = [message.for_template() for message in body.messages]
        return await self._prepare(arrival, body, lambda: self._client.tokenizer.encode_chat(messages))

    async def prepare_completion(self, arrival: Arrival, body: CompletionRequest) -> Call:
        prompt = body.prompt
        if isinstance(prompt, str):
            return await self._prepare(arrival, body, partial(self._client.tokenizer.encode, prompt))
        return await self._prepare(arrival, body, lambda: prompt)

    @asynccontextmanager
    async def run(self, call: Call) -> AsyncIterator[RunningAnswer]:
        """Generate, inside an open usage record. Raises PlatformError for what the engine refuses or fails."""
        if self._draining or self._ended_since(call) is not None:
            raise self.why_ended(call)
        outcome: Outcome = "server_error"
        opening: asyncio.Future[Ticket] | None = None
        answer = RunningAnswer(call.resolved, self._steps(call), self._clock)
        with self._metrics.in_flight.track_inprogress():
            try:
                with current_trace().phase("admit"):
                    opening = await self._opening.start(call.principal.tenant_id, partial(self._open_ticket, call))
                    await asyncio.shield(opening)
                await answer.begin()
                yield answer
                outcome = "ok"
            except EngineError as error:
                outcome = outcome_of(error)
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
                if opening is not None:
                    await to_its_end(self._settle(call, opening, answer, outcome))
                note_answer(answer, operation=call.operation, model=call.resolved.model, outcome=outcome)

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

    def why_ended(self, call: Call) -> PlatformError:
        """What is told of a call that was ended, or may not begin, before anything was sent."""
        code = self._ended_since(call)
        return draining() if code is None else refusal_of(code)

    @property
    def is_draining(self) -> bool:
        return self._draining

    async def drain(self, timeout_s: float) -> None:
        """Refuse new requests, give the running ones `timeout_s`, then end them with an error to the caller.

        It may be called again, for what the server had in hand meanwhile.
        """
        self._draining = True
        if running := self._answering.tasks:
            await asyncio.wait(running, timeout=timeout_s)
        late = self._answering.tasks
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
        await self._settler.drain(SETTLE_S)

    async def close(self) -> None:
        """After the last drain."""
        self._settler.close()
        self._preparing.close()
        self._opening.close()
        await asyncio.to_thread(self._gate.close)

    def _ended_since(self, call: Call) -> EndCode | None:
        return self._answering.ended_since(call.arrival.mark, call.principal)

    def _steps(self, call: Call) -> Steps:
        tenant_id = call.principal.tenant_id

        async def start(resolved: ResolvedModel) -> Generation:
            return await self._client.generate(replace(call.generation, adapter_digest=resolved.digest))

        async def resolve() -> ResolvedModel:
            look_up = partial(self._resolve_in_thread, call.principal, call.resolved.model, call.user)
            return await self._preparing.run(tenant_id, look_up)

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

    async def _enter(self, arrival: Arrival) -> Passage:
        if self._draining:
            raise draining()
        return await self._preparing.run(arrival.principal.tenant_id, partial(self._gate.enter, arrival.principal))

    async def _prepare(self, arrival: Arrival, body: SamplingFields, encode: Encode) -> Call:
        if self._draining:
            raise draining()
        prepare = partial(self._prepare_in_thread, arrival, body, encode)
        with current_trace().phase("prepare"):
            return await self._preparing.run(arrival.principal.tenant_id, prepare)

    def _prepare_in_thread(self, arrival: Arrival, body: SamplingFields, encode: Encode) -> Call:
        principal = arrival.principal
        passage = self._gate.enter(principal)
        with passage.named_in_refusals():
            resolved = self._resolve_in_thread(principal, body.model, body.who)
            check_answers(body, principal.limits)
            try:
                return self._call_of(arrival, passage, body, resolved, encode())
            except EngineError as error:
                raise platform_error(error) from error

    def _resolve_in_thread(self, principal: Principal, model: str, user: str | None) -> ResolvedModel:
        tenant_id, allowed = principal.tenant_id, principal.allowed_adapters
        with self._db.tenant(tenant_id).read() as session:
            return resolve_model(session, tenant_id, model, self._base_model, user=user, allowed_adapters=allowed)

    def _call_of(
        self,
        arrival: Arrival,
        passage: Passage,
        body: SamplingFields,
        resolved: ResolvedModel,
        prompt: tuple[int, ...],
    ) -> Call:
        """Raises EngineUnavailable, and PlatformError for more than the model or the caller may have."""
        info, principal = self._client.info, arrival.principal
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
            ignore_eos=body.ignore_eos,
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
        try:
            await answer.close()
        except EngineError:
            pass  # an engine that is gone has nothing left to stop
        except Exception as error:  # whatever it is, the place, the tokens and the bill do not depend on it
            log.error("an answer was not closed", request_id=call.arrival.request_id, exc_info=error)
        usage = answer.usage
        await asyncio.wait([opening])
        if (failure := opening.exception()) is not None:
            # Nothing ran; a record that may be there all the same is closed with nothing.
            if isinstance(failure, NotRecorded) and failure.ticket is not None:
                self._settler.take_over(failure.ticket.settlement(Usage(0, 0), "shed"))
            return
        self._gate.leave(call.passage, usage.prompt_tokens + usage.completion_tokens)
        self._metrics.count_generation(
            call.principal.tenant_id,
            outcome,
            prompt=usage.prompt_tokens,
            completion=usage.completion_tokens,
            cached=usage.cached_tokens,
        )
        settlement = opening.result().settlement(
            usage, outcome, answered_by=answer.resolved, first_token_at=answer.first_token_at
        )
        with current_trace().phase("settle"):
            await self._settler.settle(settlement)
