"""An engine that is killed in the middle of its work, and what the next one knows of it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lorikeet_engine.client import EngineClient
from lorikeet_engine.errors import EngineUnavailable
from tests.engine.socket.conftest import answer, eventually, generation_request, with_client

ROOT = Path(__file__).parents[3]
STEP_S = 0.01
SECOND_OF_TOKENS = int(1.0 / STEP_S)  # of one request
PROGRAM = f"""
import sys, time
from pathlib import Path
from tests.engine.socket.conftest import RunningEngine

engine = RunningEngine(
    sys.argv[1], outbox_dir=Path(sys.argv[2]), unclaimed_after_s=0.5, max_model_len=2000, n_blocks=2000
)
execute = engine.parts.runner.execute

def slowly(plan):
    time.sleep({STEP_S})
    return execute(plan)

engine.parts.runner.execute = slowly
print("ready", flush=True)
engine._thread.join()
"""


class KillableEngine:
    """One engine process after another, with one endpoint and one outbox."""

    def __init__(self, outbox: Path, stack: ExitStack) -> None:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="lk-"))  # short: a socket's path is
        self.endpoint, self._outbox, self._stack = f"ipc://{folder}/e", outbox, stack

    def start(self) -> None:
        command = [sys.executable, "-c", PROGRAM, self.endpoint, str(self._outbox)]
        self._process = self._stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT))
        self._stack.callback(self._process.kill)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[KillableEngine]:
    with ExitStack() as stack:
        engine = KillableEngine(tmp_path / "outbox", stack)
        engine.start()
        yield engine


@pytest.mark.slow
def test_f_1_a_killed_engine_loses_a_second_of_a_request_at_most_and_nothing_that_had_ended(
    engine: KillableEngine, byte_model_dir: Path
) -> None:
    async def scenario(client: EngineClient) -> None:
        for name in ("ended", "settled"):
            await answer(await client.generate(generation_request(name)))
        await client.settled(["settled"])
        running = await client.generate(generation_request("running", max_tokens=1500, n=2))

        async def read() -> None:
            async for _ in running:
                if running.usage.completion_tokens >= 400:
                    engine.kill()

        with pytest.raises(EngineUnavailable):
            await read()
        engine.start()
        await eventually(lambda: client.ready, 20)
        known = {entry.request_id: entry for entry in await client.counts(["ended", "settled", "running"])}
        assert set(known) == {"ended", "running"}
        assert (known["ended"].state, known["ended"].prompt_tokens, known["ended"].completion_tokens) == ("ended", 3, 6)
        lost, got = known["running"], running.usage.completion_tokens
        assert (lost.state, lost.tenant, lost.prompt_tokens) == ("lost", "anna", 3)
        assert got - 2 * SECOND_OF_TOKENS <= lost.completion_tokens < 3000
        assert lost.completion_tokens > 0
        offered: set[str] = set()
        while offered != {"ended", "running"}:
            offered = {entry.request_id for entry in await client.counts()}
        await client.settled(["ended", "running"])
        assert await client.counts(["ended", "running"]) == []

    with_client(engine, byte_model_dir, scenario)


@pytest.mark.slow
def test_a_second_engine_on_the_same_outbox_is_refused(engine: KillableEngine, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, f"{engine.endpoint}2", str(tmp_path / "outbox")]
    refused = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    assert refused.returncode != 0
    assert "another engine uses it" in refused.stderr
