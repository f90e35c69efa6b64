"""A running request as the gateway sees it: from the engine's tokens to pieces of text, one answer beside another.

Knows no socket; the client pushes events in and takes aborts out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from lorikeet_engine.errors import EngineError
from lorikeet_engine.protocol import Admitted, Cap, Token
from lorikeet_engine.scheduling.plan import SamplingParams
from lorikeet_engine.text.detokenizer import Detokenizer
from lorikeet_engine.text.stop_strings import StopStrings


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One prompt in token ids, and `n` answers wanted; `adapter_digest` None asks the base model.

    Attributes:
        weight: the tenant's share of the engine, relative to other tenants.
        cache_salt: the tenant's secret; separates its prefix cache from everybody else's.
        ignore_eos: answers end at `max_tokens` only.
        caps: how many requests the tenant, and the key's lineage, may have in the engine.
    """

    request_id: str
    tenant: str
    prompt: tuple[int, ...]
    max_tokens: int
    sampling: SamplingParams
    stop: tuple[str, ...] = ()
    adapter_digest: str | None = None
    weight: float = 1.0
    cache_salt: bytes = b""
    n: int = 1
    caps: tuple[Cap, ...] = ()
    ignore_eos: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as they are billed: the prompt once, the answers together. `cached_tokens` is a part of the prompt."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of the answer `index`; `finish_reason` ("stop", "length") comes with its last."""

    text: str
    finish_reason: str | None = None
    index: int = 0


Event = Admitted | Token | EngineError


@dataclass(slots=True)
class Milestones:
    """When things happened to a request, in nanoseconds since 1970; 0 = not yet. Of several answers the first counts.

    Attributes:
        queue_s: its time in the engine's queue, and `adapter_wait_s` the part of it that was its adapter's.
    """

    asked_ns: int
    is_admitted: bool = False
    queue_s: float = 0.0
    adapter_wait_s: float = 0.0
    first_token_ns: int = 0
    last_token_ns: int = 0


class EngineLink(Protocol):
    """What a generation needs of the client that it came from."""

    def forget(self, request: GenerationRequest) -> None: ...
    async def abort(self, request_id: str, index: int | None) -> None: ...


class _Answer:
    """One of a request's answers: its text so far, and the tokens that were accepted into it."""

    def __init__(self, index: int, decode: Callable[[Sequence[int]], str], stop: tuple[str, ...]) -> None:
        self.tokens: list[int] = []
        self._index = index
        self._detokenizer = Detokenizer(decode)
        self._stops = StopStrings(stop)

    def accept(self, event: Token) -> Delta:
        self.tokens.append(event.token)
        is_eos = event.finish_reason == "stop"
        piece = "" if is_eos else self._detokenizer.push(event.token)
        if event.finish_reason:
            piece += self._detokenizer.finish()
        cut = self._stops.push(piece)
        if cut.stopped:
            return Delta(cut.text, "stop", self._index)
        if event.finish_reason:
            return Delta(cut.text + self._stops.finish(), event.finish_reason, self._index)
        return Delta(cut.text, None, self._index)


class Generation:
    """One running request: iterate over it for its answers' pieces, and `close` it whatever happens.

    `usage` is what is billed if it ended now: the prompt once the engine gave its first token, and the tokens that were
    accepted into the answers (those behind a stop string are not).
    """

    def __init__(self, link: EngineLink, request: GenerationRequest, decode: Callable[[Sequence[int]], str]) -> None:
        self.request = request
        self._link = link
        self._events: asyncio.Queue[tuple[int, Event]] = asyncio.Queue()
        self._answers = [_Answer(index, decode, request.stop) for index in range(request.n)]
        self._unfinished = set(range(request.n))
        self._cached_tokens = 0
        self.milestones = Milestones(time.time_ns())

    @property
    def usage(self) -> Usage:
        n_accepted = sum(len(answer.tokens) for answer in self._answers)
        if not n_accepted:
            return Usage(0, 0)
        return Usage(len(self.request.prompt), n_accepted, self._cached_tokens)

    def tokens(self, index: int = 0) -> tuple[int, ...]:
        """Those of one answer so far, its end-of-sequence token included."""
        return tuple(self._answers[index].tokens)

    def push(self, index: int, event: Event) -> None:
        """Called by the client's reader."""
        self._note(event)
        self._events.put_nowait((index, event))

    async def __aiter__(self) -> AsyncIterator[Delta]:
        """Pieces of the answers, each answer's in order.

        Raises:
            EngineError: the engine refused the request, failed, or went away; no answer goes on.
        """
        while self._unfinished:
            index, event = await self._events.get()
            if isinstance(event, EngineError):
                self._unfinished.discard(index)
                await self.close()
                raise event
            if isinstance(event, Admitted):
                if index == 0:  # the others share the prompt with it
                    self._cached_tokens = event.cached_tokens
            elif index in self._unfinished:  # tokens of a stopped answer may have been on their way
                delta = self._answers[index].accept(event)
                if delta.finish_reason:
                    await self._finish(index, by_engine=bool(event.finish_reason))
                if delta.text or delta.finish_reason:
                    yield delta

    async def close(self) -> None:
        """Stop the engine's work on it, if it still works; may be called again."""
        self._link.forget(self.request)
        if self._unfinished:
            self._unfinished.clear()
            await self._link.abort(self.request.request_id, None)

    def _note(self, event: Event) -> None:
        milestones = self.milestones
        if isinstance(event, Token):
            milestones.last_token_ns = time.time_ns()
            milestones.first_token_ns = milestones.first_token_ns or milestones.last_token_ns
        elif isinstance(event, Admitted) and not milestones.is_admitted:
            milestones.is_admitted = True
            milestones.queue_s, milestones.adapter_wait_s = event.queue_s, event.adapter_wait_s

    async def _finish(self, index: int, *, by_engine: bool) -> None:
        self._unfinished.discard(index)
        if not self._unfinished:
            self._link.forget(self.request)
        if not by_engine:
            await self._link.abort(self.request.request_id, index)
