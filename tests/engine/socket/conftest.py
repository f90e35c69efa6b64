"""A scripted engine behind a real ZeroMQ socket, in a thread; a tokenizer of single bytes; and a client's moves."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from lorikeet_engine.client import EngineClient, Generation, GenerationRequest, SamplingParams
from lorikeet_engine.memory.ledger import MemoryState
from lorikeet_engine.outbox.journal import Journal
from lorikeet_engine.protocol import UNCLAIMED_AFTER_S, EngineInfo
from lorikeet_engine.server import EngineServer
from lorikeet_engine.socket_keys import SocketKeys
from tests.support.engine_figures import engine_design
from tests.support.scripted_engine_parts import VOCAB, ScriptedEngine, scripted_engine

StartEngine = Callable[..., Any]
SCENARIO_S = 30.0  # an answer that never ends fails its test instead of stopping all


def generation_request(request_id: str = "r", **changes: Any) -> GenerationRequest:
    fields: dict[str, Any] = {
        "request_id": request_id,
        "tenant": "anna",
        "prompt": (5, 6, 7),
        "max_tokens": 6,
        "sampling": SamplingParams(),
    }
    return GenerationRequest(**(fields | changes))


async def answer(generation: Generation) -> tuple[str, str | None]:
    text, reason = "", None
    async for delta in generation:
        text += delta.text
        reason = delta.finish_reason
    return text, reason


def with_client(
    engine: Any, model_dir: Path, scenario: Callable[[EngineClient], Awaitable[None]], **options: Any
) -> None:
    async def run() -> None:
        client = EngineClient(endpoint=engine.endpoint, model_dir=model_dir, **options)
        await client.start()
        try:
            await client.wait_ready(5)
            async with asyncio.timeout(SCENARIO_S):
                await scenario(client)
        finally:
            await client.stop()

    asyncio.run(run())


async def eventually(condition: Callable[[], bool], timeout_s: float = 5.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


def is_given_back(engine: RunningEngine) -> bool:
    """Whether no request holds KV memory any more; what is cached is nobody's."""
    ledger = engine.parts.loop.kv.ledger
    return ledger[MemoryState.FREE] + ledger[MemoryState.CACHED] == ledger.capacity


@pytest.fixture(scope="session")
def byte_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a tokenizer whose tokens are bytes: what a client needs of a model."""
    folder = tmp_path_factory.mktemp("byte-model")
    letters = {char: i for i, char in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=letters, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    return folder


class RunningEngine:
    """One `EngineServer` in a thread."""

    def __init__(
        self,
        endpoint: str,
        *,
        keys: SocketKeys | None = None,
        drain_s: float = 0.2,
        outbox_dir: Path | None = None,
        unclaimed_after_s: float = UNCLAIMED_AFTER_S,
        **limits: Any,
    ) -> None:
        self.endpoint = endpoint
        self.parts: ScriptedEngine = scripted_engine(**{"max_model_len": 128, "n_blocks": 65} | limits)
        info = EngineInfo(
            model_name="scripted",
            model_digest="0" * 64,
            device="none",
            dtype="none",
            max_model_len=128,
            block_size=4,
            vocab=VOCAB,
        )
        self.server = EngineServer(
            loop=self.parts.loop,
            info=info,
            design=engine_design(),
            endpoint=endpoint,
            keys=keys,
            journal=Journal(outbox_dir) if outbox_dir else None,
            unclaimed_after_s=unclaimed_after_s,
            drain_s=drain_s,
        )
        self._thread = threading.Thread(target=self.server.run)
        self._thread.start()

    def stop(self) -> None:
        self.server.stop()
        self._thread.join(timeout=10)


@pytest.fixture
def start_engine() -> Iterator[Callable[..., RunningEngine]]:
    """Start engines on a private socket, with limits of their own where given; all are stopped at the end."""
    started: list[RunningEngine] = []
    with tempfile.TemporaryDirectory(prefix="lk-") as folder:  # short: a socket's path has at most 107 bytes

        def start(endpoint: str = f"ipc://{folder}/e", **options: Any) -> RunningEngine:
            started.append(RunningEngine(endpoint, **options))
            return started[-1]

        yield start
        for engine in started:
            engine.stop()
