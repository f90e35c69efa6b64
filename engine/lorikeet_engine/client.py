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
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import zmq
import zmq.asyncio
from zmq.utils.monitor import recv_monitor_message

from lorikeet_engine.errors import ERRORS_BY_CODE, EngineError, EngineFailure, EngineUnavailable
from lorikeet_engine.protocol import (
    PROTOCOL_VERSION,
    STANDSTILL_S,
    Abort,
    AskStats,
    ClientMessage,
    EngineInfo,
    EngineMessage,
    EngineStats,
    Failed,
    Hello,
    Stats,
    Step,
    Submit,
    Token,
    Welcome,
    decode_engine,
    encode,
)
from lorikeet_engine.scheduling.plan import SamplingParams
from lorikeet_engine.socket_keys import keep_alive, keys_for, secure_client
from lorikeet_engine.text.detokenizer import Detokenizer
from lorikeet_engine.text.stop_strings import StopStrings
from lorikeet_engine.text.tokenizer import Tokenizer

__all__ = [
    "Delta",
    "EngineClient",
    "EngineInfo",
    "EngineStats",
    "Generation",
    "GenerationRequest",
    "SamplingParams",
    "Usage",
]

HELLO_EVERY_S = 1.0
HELLO_AGAIN_S = 0.1
STATS_TIMEOUT_S = 5.0


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One request in token ids; `adapter_digest` None asks the base model."""

    request_id: str
    tenant: str
    prompt: tuple[int, ...]
    max_tokens: int
    sampling: SamplingParams
    stop: tuple[str, ...] = ()
    adapter_digest: str | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as they are billed."""

    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of the answer; `finish_reason` ("stop", "length") comes with the last."""

    text: str
    finish_reason: str | None = None


class Generation:
    """One running request: iterate over it for the answer's pieces, and `close` it whatever happens.

    `usage` is what is billed if it ended now: the prompt once the engine gave its first token, and the tokens that were
    accepted into the answer (those behind a stop string are not).
    """

    def __init__(self, client: EngineClient, request: GenerationRequest) -> None:
        self._client = client
        self._request = request
        self._events: asyncio.Queue[Token | EngineError] = asyncio.Queue()
        self._detokenizer = Detokenizer(client.tokenizer.decode)
        self._stops = StopStrings(request.stop)
        self._n_accepted = 0
        self._ended = False

    @property
    def usage(self) -> Usage:
        return Usage(len(self._request.prompt) if self._n_accepted else 0, self._n_accepted)

    def push(self, event: Token | EngineError) -> None:
        """Called by the client's reader."""
        self._events.put_nowait(event)

    async def __aiter__(self) -> AsyncIterator[Delta]:
        """Pieces of the answer in order.

        Raises:
            EngineError: the engine refused the request, failed, or went away.
        """
        while not self._ended:
            event = await self._events.get()
            if isinstance(event, EngineError):
                self._ended = True
                self._client.forget(self._request.request_id)
                raise event
            self._n_accepted += 1
            delta = self._accept(event)
            if delta.finish_reason:
                await self._end(finished_by_engine=bool(event.finish_reason))
            if delta.text or delta.finish_reason:
                yield delta

    async def close(self) -> None:
        """Stop the engine's work on it, if it still works; may be called again."""
        await self._end(finished_by_engine=False)

    def _accept(self, event: Token) -> Delta:
        is_eos = event.finish_reason == "stop"
        piece = "" if is_eos else self._detokenizer.push(event.token)
        if event.finish_reason:
            piece += self._detokenizer.finish()
        cut = self._stops.push(piece)
        if cut.stopped:
            return Delta(cut.text, "stop")
        if event.finish_reason:
            return Delta(cut.text + self._stops.finish(), event.finish_reason)
        return Delta(cut.text)

    async def _end(self, *, finished_by_engine: bool) -> None:
        if self._ended:
            return
        self._ended = True
        self._client.forget(self._request.request_id)
        if not finished_by_engine:
            await self._client.abort(self._request.request_id)


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
        self._generations: dict[str, Generation] = {}
        self._stats: dict[int, asyncio.Future[EngineStats]] = {}
        self._tickets = itertools.count(1)
        self._session = ""
        self._lost: set[str] = set()  # requests the engine may still work on though nobody waits for them
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

    async def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> tuple[int, ...]:
        return await asyncio.to_thread(self.tokenizer.encode_chat, messages)

    async def encode_text(self, text: str) -> tuple[int, ...]:
        return await asyncio.to_thread(self.tokenizer.encode, text)

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
            prompt=list(request.prompt),
            max_tokens=request.max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            seed=sampling.seed,
            adapter=request.adapter_digest or "",
        )
        generation = self._generations[request.request_id] = Generation(self, request)
        try:
            await self._send(submit)
        except EngineUnavailable:
            self.forget(request.request_id)
            raise
        return generation

    async def stats(self) -> EngineStats:
        """The engine's figures now.

        Raises:
            EngineUnavailable: no engine answers.
        """
        self.info  # noqa: B018
        ticket = next(self._tickets)
        future: asyncio.Future[EngineStats] = asyncio.get_running_loop().create_future()
        self._stats[ticket] = future
        try:
            await self._send(AskStats(ticket))
            return await asyncio.wait_for(future, STATS_TIMEOUT_S)
        except TimeoutError:
            raise EngineUnavailable(f"the engine did not answer within {STATS_TIMEOUT_S:g} s") from None
        finally:
            self._stats.pop(ticket, None)

    async def abort(self, request_id: str) -> None:
        """Tell the engine to stop a request (`Generation.close` calls this), now or when it is back."""
        try:
            await self._send(Abort(request_id))
        except EngineUnavailable:
            self._lost.add(request_id)

    def forget(self, request_id: str) -> None:
        self._generations.pop(request_id, None)

    async def _send(self, message: ClientMessage) -> None:
        if self._socket is None or self._socket.closed:
            raise EngineUnavailable("the engine client is not started")
        try:
            await self._socket.send(encode(message), zmq.NOBLOCK)
        except zmq.Again:
            raise EngineUnavailable("the engine is not connected; try again shortly") from None

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
        for request_id in lost:
            await self.abort(request_id)

    def _handle(self, message: EngineMessage) -> None:
        match message:
            case Welcome(version, session, info):
                if version != PROTOCOL_VERSION:
                    self._lose_engine(f"the engine speaks protocol {version}, this gateway {PROTOCOL_VERSION}")
                    return
                if session != self._session:
                    self._lose_engine("the engine restarted")
                self._session, self._info = session, info
            case Step(tokens):
                for token in tokens:
                    if generation := self._generations.get(token.request_id):
                        generation.push(token)
            case Failed():
                if generation := self._generations.get(message.request_id):
                    error = ERRORS_BY_CODE.get(message.code, EngineFailure)
                    generation.push(error(message.message, param=message.param))
            case Stats(ticket, stats):
                future = self._stats.get(ticket)
                if future and not future.done():
                    future.set_result(stats)

    def _lose_engine(self, reason: str) -> None:
        self._info = None
        self._lost.update(self._generations)
        for generation in list(self._generations.values()):
            generation.push(EngineUnavailable(reason))
        for future in self._stats.values():
            with contextlib.suppress(asyncio.InvalidStateError):
                future.set_exception(EngineUnavailable(reason))
