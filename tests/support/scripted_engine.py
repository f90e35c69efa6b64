"""An engine client that answers from a script: for the gateway's tests, which need no model.

Tokens are words. Each generation takes the next script; without one every answer is "Hello world." and stops.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lorikeet_engine.client import Delta, EngineClient, EngineInfo, Generation, GenerationRequest, RequestCounts, Usage
from lorikeet_engine.errors import EngineError, EngineUnavailable
from lorikeet_engine.generation import Milestones
from lorikeet_engine.text.tokenizer import Tokenizer

CONTEXT = 64
VOCAB = 1000


@dataclass(frozen=True)
class Hang:
    """The engine stays silent from here on."""


Event = Delta | EngineError | Exception | Hang
HELLO = (Delta("Hello"), Delta(" world."), Delta("", "stop"))


def hello(n: int) -> list[Event]:
    """Every answer's pieces, one answer beside another."""
    return [replace(delta, index=index) for delta in HELLO for index in range(n)]


class ScriptedGeneration(Generation):
    """Plays one script; counts one token a delta."""

    def __init__(self, request: GenerationRequest, events: Sequence[Event], cached_tokens: int) -> None:
        self.request = request
        self.cached_tokens = cached_tokens
        self.n_closed = 0
        self.n_played = 0
        self._script = events
        waited_s = 0.003 if request.adapter_digest else 0.0
        self.milestones = Milestones(time.time_ns(), is_admitted=True, queue_s=0.004, adapter_wait_s=waited_s)

    @property
    def usage(self) -> Usage:
        return Usage(len(self.request.prompt), self.n_played, self.cached_tokens) if self.n_played else Usage(0, 0)

    async def __aiter__(self) -> AsyncIterator[Delta]:
        for event in self._script:
            await asyncio.sleep(0)
            match event:
                case Delta():
                    self.n_played += 1
                    self.milestones.last_token_ns = time.time_ns()
                    self.milestones.first_token_ns = self.milestones.first_token_ns or time.time_ns()
                    yield event
                case Hang():
                    await asyncio.Event().wait()
                case _:
                    raise event

    async def close(self) -> None:
        self.n_closed += 1


class WordTokenizer(Tokenizer):
    """A token is a word."""

    def __init__(self) -> None:
        """There is nothing to read."""

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(range(1, 1 + len(text.split())))

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> tuple[int, ...]:
        return tuple(range(1, 1 + sum(1 + len(message["content"].split()) for message in messages)))


@dataclass
class ScriptedEngine(EngineClient):
    """Hands out scripts in order and remembers what was asked."""

    scripts: list[Sequence[Event]] = field(default_factory=list)
    generations: list[ScriptedGeneration] = field(default_factory=list)
    is_up: bool = True
    cached_tokens: int = 0
    warmed: list[tuple[str, str]] = field(default_factory=list)  # tenant, digest
    retired: list[tuple[str, str, bool]] = field(default_factory=list)  # tenant, digest, by force
    unloadable: dict[str, EngineError] = field(default_factory=dict)  # by digest
    left: list[RequestCounts] = field(default_factory=list)  # ended, not settled, and nobody's
    tokenizer: Tokenizer = field(default_factory=WordTokenizer)
    on_record: list[str] = field(default_factory=list)  # request ids that need not be remembered

    @property
    def ready(self) -> bool:
        return self.is_up

    @property
    def info(self) -> EngineInfo:
        if not self.is_up:
            raise EngineUnavailable("the engine is not answering; try again shortly")
        return EngineInfo(
            model_name="tiny",
            model_digest="d" * 64,
            device="cpu",
            dtype="float32",
            max_model_len=CONTEXT,
            block_size=16,
            vocab=VOCAB,
        )

    async def generate(self, request: GenerationRequest) -> Generation:
        script = self.scripts.pop(0) if self.scripts else hello(request.n)
        generation = ScriptedGeneration(request, script, self.cached_tokens)
        self.generations.append(generation)
        return generation

    async def warm_adapter(self, tenant: str, digest: str, timeout_s: float) -> None:  # noqa: ARG002
        self.info  # noqa: B018 (raises when the engine is down)
        if error := self.unloadable.get(digest):
            raise error
        self.warmed.append((tenant, digest))

    async def retire_adapter(self, tenant: str, digest: str, *, force: bool = False) -> None:
        self.info  # noqa: B018
        self.retired.append((tenant, digest, force))

    async def settled(self, request_ids: Sequence[str]) -> None:
        self.on_record += request_ids
        self.left = [entry for entry in self.left if entry.request_id not in request_ids]

    async def counts(self, request_ids: Sequence[str] = ()) -> Sequence[RequestCounts]:
        self.info  # noqa: B018
        return [entry for entry in self.left if entry.request_id in request_ids or not request_ids]
