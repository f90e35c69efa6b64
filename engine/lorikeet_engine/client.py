"""The platform's end of the engine socket: text in, text out, usage counted by the engine.

Tokenising, detokenising and stop strings happen here, in the gateway, so that they scale with it and keep the
engine's loop free. Imports no torch.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import zmq
import zmq.asyncio
from zmq.utils.monitor import recv_monitor_message

from lorikeet_engine.errors import ERRORS_BY_CODE, EngineError, EngineFailure, EngineUnavailable
from lorikeet_engine.generation import Delta, Generation, GenerationRequest, Usage
from lorikeet_engine.protocol import (
    PROTOCOL_VERSION,
    STANDSTILL_S,
    Abort,
    Adapter,
    Admitted,
    AskAdapter,
    AskCounts,
    AskDesign,
    AskPrompts,
    AskStats,
    AskSteps,
    Cap,
    ClientMessage,
    Counts,
    Design,
    EngineInfo,
    EngineMessage,
    Failed,
    Hello,
    Prompts,
    Question,
    RequestCounts,
    Retire,
    Settled,
    Stats,
    Step,
    Steps,
    Submit,
    Token,
    Warm,
    Warmed,
    Welcome,
    decode_engine,
    encode,
    sequence_id,
)
from lorikeet_engine.scheduling.plan import SamplingParams
from lorikeet_engine.socket_keys import keep_alive, keys_for, secure_client
from lorikeet_engine.stats import AdapterResidency, EngineDesign, EngineStats, PromptHeads
from lorikeet_engine.text.tokenizer import Tokenizer

__all__ = [
    "AdapterResidency",
    "Cap",
    "Delta",
    "EngineClient",
    "EngineDesign",
    "EngineInfo",
    "EngineStats",
    "Generation",
    "GenerationRequest",
    "PromptHeads",
    "RequestCounts",
    "SamplingParams",
    "Steps",
    "Usage",
]

HELLO_EVERY_S = 1.0
HELLO_AGAIN_S = 0.1
STATS_TIMEOUT_S = 5.0

Answer = Counts | Stats | Adapter | Steps | Prompts | Design | Warmed
A = TypeVar("A", bound=Answer)


log = logging.getLogger(__name__)


class EngineClient:
    """A connection to one engine that survives the engine's restarts.

    Args:
        endpoint: the engine's ZeroMQ address.
        model_dir: the base model's directory, for its tokenizer and chat template.
        key_file: CURVE keys for tcp endpoints.
    """

    def __init__(self, *, endpoint: str, model_dir: Path, key_file: Path | None = None) -> None:
        self.tokenizer = Tokenizer(model_dir)
        self._endpoint = endpoint
        self._keys = keys_for(endpoint, key_file)
        self._info: EngineInfo | None = None
        self._last_heard_s = 0.0
        self._sequences: dict[str, tuple[Generation, int]] = {}  # by sequence id: whose, and which of its answers
        self._asked: dict[int, asyncio.Future[Answer]] = {}  # by ticket
        self._tickets = itertools.count(1)
        self._session = ""
        self._lost: set[tuple[str, int | None]] = set()  # aborts that the engine has not been told of
        self._tasks: list[asyncio.Task[None]] = []
        self._context: zmq.asyncio.Context | None = None
        self._socket: zmq.asyncio.Socket | None = None

    async def start(self) -> None:
        """Open the socket and look for the engine; returns at once."""
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.linger = 0
        self._socket.identity = uuid.uuid4().hex.encode()  # not the bytes: a first byte of 0 is ZeroMQ's own
        keep_alive(self._socket)
        if self._keys:
            secure_client(self._socket, self._keys)
        monitor = self._socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._socket.connect(self._endpoint)
        self._tasks = [asyncio.create_task(work) for work in (self._read(), self._greet(), self._watch(monitor))]

    async def stop(self) -> None:
        """Close the socket; what still runs ends with `EngineUnavailable`."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._lose_engine("the gateway is shutting down")
        if self._socket and self._context:
            self._socket.disable_monitor()
            self._context.destroy(linger=0)  # the monitor's socket is the context's, too

    @property
    def ready(self) -> bool:
        return self._info is not None

    @property
    def info(self) -> EngineInfo:
        if self._info is None:
            raise EngineUnavailable("the engine is not answering; try again shortly")
        return self._info

    async def wait_ready(self, timeout_s: float) -> None:
        """Raises EngineUnavailable when the engine has not answered in time."""
        deadline = time.monotonic() + timeout_s
        while not self.ready:
            if time.monotonic() > deadline:
                raise EngineUnavailable(f"the engine did not answer within {timeout_s:g} s")
            await asyncio.sleep(0.05)

    async def generate(self, request: GenerationRequest) -> Generation:
        """Send a request to the engine; iterate over the result, then close it.

        Raises:
            EngineUnavailable: no engine answers now.
        """
        self.info  # noqa: B018 (raises when there is no engine)
        sampling = request.sampling
        submit = Submit(
            request_id=request.request_id,
            tenant=request.tenant,
            weight=request.weight,
            cache_salt=request.cache_salt,
            n=request.n,
            prompt=list(request.prompt),
            max_tokens=request.max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            seed=sampling.seed,
            adapter=request.adapter_digest or "",
            caps=list(request.caps),
            ignore_eos=request.ignore_eos,
        )
        generation = Generation(self, request, self.tokenizer.decode)
        for index in range(request.n):
            self._sequences[sequence_id(request.request_id, index)] = (generation, index)
        try:
            await self._send(submit)
        except EngineUnavailable:
            self.forget(request)
            raise
        return generation

    async def retire_adapter(self, tenant: str, digest: str, *, force: bool = False) -> None:
        """Take an adapter out of service: nothing new starts on it, and what runs ends as it began.

        With `force` that ends at once, with `AdapterRetired`.

        Raises:
            EngineUnavailable: no engine answers now.
        """
        self.info  # noqa: B018
        await self._send(Retire(tenant, digest, force))

    async def warm_adapter(self, tenant: str, digest: str, timeout_s: float) -> None:
        """Put an adapter into service, retired or not, and return when its image is in the engine's memory.

        Raises:
            AdapterUnavailable, AdapterDamaged: it cannot be loaded.
            AdapterRetired: it was retired meanwhile.
            EngineUnavailable: no engine answers, or not within `timeout_s`; the engine may still load the adapter.
        """
        answer = await self._ask(Warmed, lambda ticket: Warm(ticket, tenant, digest), timeout_s)
        if answer.code:
            error = ERRORS_BY_CODE.get(answer.code, EngineFailure)
            raise error(answer.message, param="model", retry_after_s=answer.retry_after_s)

    async def settled(self, request_ids: Sequence[str]) -> None:
        """Tell the engine that it may forget what these have used; an engine that cannot hear it is told by nobody.

        It then offers them in `counts` again, and whoever settles them finds that they are settled.
        """
        with contextlib.suppress(EngineUnavailable):
            await self._send(Settled(list(request_ids)))

    async def counts(self, request_ids: Sequence[str] = ()) -> Sequence[RequestCounts]:
        """What these requests have used, those the engine knows; without ids, every ended one that nobody claims.

        Raises:
            EngineUnavailable: no engine answers.
        """
        answer = await self._ask(Counts, lambda ticket: AskCounts(ticket, list(request_ids)))
        return answer.requests

    async def stats(self, *, names_adapters: bool = False) -> EngineStats:
        """The engine's figures now; with `names_adapters` also the adapters in demand, one by one.

        Raises:
            EngineUnavailable: no engine answers.
        """
        answer = await self._ask(Stats, lambda ticket: AskStats(ticket, names_adapters))
        return answer.stats

    async def adapter(self, tenant: str, digest: str) -> AdapterResidency | None:
        """Where the adapter is, and who needs it there; None when it is only in the store, and nobody asks for it.

        Raises:
            EngineUnavailable: no engine answers.
        """
        answer = await self._ask(Adapter, lambda ticket: AskAdapter(ticket, tenant, digest))
        return answer.adapter

    async def steps(self, after_s: float = float("-inf")) -> Steps:
        """The steps that ended after `after_s` on the engine's clock, as far as it remembers them; oldest first.

        Raises:
            EngineUnavailable: no engine answers.
        """
        return await self._ask(Steps, lambda ticket: AskSteps(ticket, after_s))

    async def prompts(self) -> list[PromptHeads]:
        """How alike the newest prompts are.

        Raises:
            EngineUnavailable: no engine answers.
        """
        answer = await self._ask(Prompts, lambda ticket: AskPrompts(ticket))
        return answer.heads

    async def design(self) -> EngineDesign:
        """What the engine was started with, and what it made of that.

        Raises:
            EngineUnavailable: no engine answers.
        """
        answer = await self._ask(Design, lambda ticket: AskDesign(ticket))
        return answer.design

    async def _ask(
        self, kind: type[A], question: Callable[[int], Question | Warm], timeout_s: float = STATS_TIMEOUT_S
    ) -> A:
        """The engine's answer, of that kind, to the question with a ticket of its own."""
        self.info  # noqa: B018
        ticket = next(self._tickets)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked[ticket] = future
        try:
            await self._send(question(ticket))
            answer = await asyncio.wait_for(future, timeout_s)
        except TimeoutError:
            raise EngineUnavailable(f"the engine did not answer within {timeout_s:g} s") from None
        finally:
            self._asked.pop(ticket, None)
        assert isinstance(answer, kind)
        return answer

    async def abort(self, request_id: str, index: int | None) -> None:
        """Tell the engine to stop one answer of a request or, with None, all of them: now, or when it is back.

        A `Generation` calls this.
        """
        try:
            await self._send(Abort(request_id, index))
        except EngineUnavailable:
            self._lost.add((request_id, index))

    def forget(self, request: GenerationRequest) -> None:
        for index in range(request.n):
            self._sequences.pop(sequence_id(request.request_id, index), None)

    async def _send(self, message: ClientMessage) -> None:
        if self._socket is None or self._socket.closed:
            raise EngineUnavailable("the engine client is not started")
        try:
            await self._socket.send(encode(message), zmq.NOBLOCK)
        except zmq.Again:
            raise EngineUnavailable("the engine is not connected; try again shortly") from None
        except zmq.ZMQError as error:  # the socket is being closed, or was left without its context
            raise EngineUnavailable(f"the engine cannot be reached: {error.strerror}") from error

    async def _greet(self) -> None:
        while True:
            with contextlib.suppress(EngineUnavailable):
                await self._send(Hello(PROTOCOL_VERSION))
            await asyncio.sleep(HELLO_EVERY_S if self.ready else HELLO_AGAIN_S)
            if self._info and time.monotonic() - self._last_heard_s > STANDSTILL_S:
                self._lose_engine("the engine stopped answering")

    async def _watch(self, monitor: zmq.asyncio.Socket) -> None:
        """Tokens may have been lost with a connection, so nothing that ran over it can be trusted to end."""
        assert self._socket is not None
        while True:
            await recv_monitor_message(monitor)
            while await self._socket.poll(0):  # what arrived before the end still counts
                await asyncio.sleep(0)
            self._lose_engine("the connection to the engine was lost")

    async def _read(self) -> None:
        assert self._socket is not None
        while True:
            frame = await self._socket.recv()
            try:
                message = decode_engine(frame)
            except msgspec.MsgspecError:
                log.warning("a frame of the engine is no message of protocol %d", PROTOCOL_VERSION)
                continue
            self._last_heard_s = time.monotonic()
            self._handle(message)
            if self.ready:
                await self._abort_lost()

    async def _abort_lost(self) -> None:
        lost, self._lost = self._lost, set()
        for request_id, index in lost:
            await self.abort(request_id, index)

    def _handle(self, message: EngineMessage) -> None:
        match message:
            case Welcome(version, session, info):
                if version != PROTOCOL_VERSION:
                    self._lose_engine(f"the engine speaks protocol {version}, this gateway {PROTOCOL_VERSION}")
                    return
                if session != self._session:
                    self._lose_engine("the engine restarted")
                self._session, self._info = session, info
            case Step(tokens, admitted):
                events: tuple[Admitted | Token, ...] = (*admitted, *tokens)
                for event in events:
                    if sequence := self._sequences.get(event.request_id):
                        generation, index = sequence
                        generation.push(index, event)
            case Failed():
                if sequence := self._sequences.get(message.request_id):
                    generation, index = sequence
                    generation.push(index, _error(message))
            case Counts() | Stats() | Adapter() | Steps() | Prompts() | Design() | Warmed():
                future = self._asked.get(message.ticket)
                if future and not future.done():
                    future.set_result(message)

    def _lose_engine(self, reason: str) -> None:
        self._info = None
        generations = {id(generation): generation for generation, _ in self._sequences.values()}
        for generation in generations.values():
            self._lost.add((generation.request.request_id, None))
            generation.push(0, EngineUnavailable(reason))
        for future in self._asked.values():
            with contextlib.suppress(asyncio.InvalidStateError):
                future.set_exception(EngineUnavailable(reason))


def _error(message: Failed) -> EngineError:
    error = ERRORS_BY_CODE.get(message.code, EngineFailure)
    return error(message.message, param=message.param, retry_after_s=message.retry_after_s, reason=message.reason)
