"""The platform's end of the engine socket: text in, text out, usage counted by the engine.

Tokenising, detokenising and stop strings happen here, in the gateway, so that they scale with it and keep the
engine's loop free. Imports no torch.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import zmq
import zmq.asyncio

from lorikeet_engine.errors import ERRORS_BY_CODE, EngineError, EngineFailure, EngineUnavailable
from lorikeet_engine.protocol import (
    PROTOCOL_VERSION,
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
from lorikeet_engine.socket_keys import keys_for, secure_client
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
SILENCE_S = 15.0  # a step may take seconds; this much silence means that nobody is there
STATS_TIMEOUT_S = 5.0


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
        self._tasks: list[asyncio.Task[None]] = []
        self._context: zmq.asyncio.Context | None = None
        self._socket: zmq.asyncio.Socket | None = None

    async def start(self) -> None:
        """Open the socket and look for the engine; returns at once."""
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.linger = 0
        if self._keys:
            secure_client(self._socket, self._keys)
        self._socket.connect(self._endpoint)
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._greet())]

    async def stop(self) -> None:
        """Close the socket; what still runs ends with `EngineUnavailable`."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._lose_engine("the gateway is shutting down")
        if self._socket and self._context:
            self._socket.close()
            self._context.term()

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
        generation = Generation(self, request)
        self._generations[request.request_id] = generation
        sampling = request.sampling
        await self._send(
            Submit(
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
        )
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
        """Tell the engine to stop a request (`Generation.close` calls this)."""
        if self.ready:
            await self._send(Abort(request_id))

    def forget(self, request_id: str) -> None:
        self._generations.pop(request_id, None)

    async def _send(self, message: ClientMessage) -> None:
        if self._socket is None or self._socket.closed:
            raise EngineUnavailable("the engine client is not started")
        await self._socket.send(encode(message))

    async def _greet(self) -> None:
        while True:
            await self._send(Hello(PROTOCOL_VERSION))
            await asyncio.sleep(HELLO_EVERY_S)
            if self._info and time.monotonic() - self._last_heard_s > SILENCE_S:
                self._lose_engine("the engine stopped answering")

    async def _read(self) -> None:
        assert self._socket is not None
        while True:
            message = decode_engine(await self._socket.recv())
            self._last_heard_s = time.monotonic()
            self._handle(message)

    def _handle(self, message: EngineMessage) -> None:
        match message:
            case Welcome(version, info):
                if version != PROTOCOL_VERSION:
                    self._lose_engine(f"the engine speaks protocol {version}, this gateway {PROTOCOL_VERSION}")
                    return
                if self._info and self._info.instance_id != info.instance_id:
                    self._lose_engine("the engine restarted")
                self._info = info
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
        for generation in list(self._generations.values()):
            generation.push(EngineUnavailable(reason))
        for future in self._stats.values():
            with contextlib.suppress(asyncio.InvalidStateError):
                future.set_exception(EngineUnavailable(reason))
