"""A scripted engine behind a real ZeroMQ socket, in a thread; and a tokenizer of single bytes."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from lorikeet_engine.protocol import EngineInfo
from lorikeet_engine.server import EngineServer
from lorikeet_engine.socket_keys import SocketKeys
from tests.support.scripted_engine_parts import VOCAB, ScriptedEngine, scripted_engine


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

    def __init__(self, endpoint: str, *, keys: SocketKeys | None = None, drain_s: float = 0.2) -> None:
        self.endpoint = endpoint
        self.parts: ScriptedEngine = scripted_engine(max_model_len=128, n_blocks=65)
        info = EngineInfo(
            model_name="scripted",
            model_digest="0" * 64,
            device="none",
            dtype="none",
            max_model_len=128,
            block_size=4,
            vocab=VOCAB,
        )
        self.server = EngineServer(loop=self.parts.loop, info=info, endpoint=endpoint, keys=keys, drain_s=drain_s)
        self._thread = threading.Thread(target=self.server.run)
        self._thread.start()

    def stop(self) -> None:
        self.server.stop()
        self._thread.join(timeout=10)


@pytest.fixture
def start_engine() -> Iterator[Callable[..., RunningEngine]]:
    """Start engines on a private socket; all are stopped at the end."""
    started: list[RunningEngine] = []
    with tempfile.TemporaryDirectory(prefix="lk-") as folder:  # short: a socket's path has at most 107 bytes

        def start(endpoint: str = f"ipc://{folder}/e", **options: object) -> RunningEngine:
            started.append(RunningEngine(endpoint, **options))  # type: ignore[arg-type]
            return started[-1]

        yield start
        for engine in started:
            engine.stop()
