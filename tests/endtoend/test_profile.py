"""`lorikeet engine --profile N` as a person runs it: a process, some tokens, a file that Perfetto opens."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lorikeet_engine.client import EngineClient, GenerationRequest, SamplingParams
from tests.support.running_lorikeet import MIB, clean_environment
from tests.support.trace_events import assert_nested, complete_events, inside

pytestmark = pytest.mark.slow

READY_WITHIN_S = 90.0
N_STEPS, N_WARM_UP = 5, 8
PHASES = ["receive", "collect loads", "reap", "plan", "start loads", "place", "execute", "commit", "send"]
LAYER = ["attention_norm", "qkv", "rotary_write_kv", "attention", "o", "mlp_norm", "gate_up", "silu_mul", "down"]


@pytest.fixture
def endpoint() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="lk-") as folder:  # short: a socket's path has at most 107 bytes
        yield f"ipc://{folder}/engine"


def start_engine(folder: Path, model_dir: Path, endpoint: str, *options: str) -> subprocess.Popen[str]:
    environment = clean_environment() | {
        "LORIKEET_DATA_DIR": str(folder),
        "LORIKEET_MODEL": str(model_dir),
        "LORIKEET_ENGINE_ENDPOINT": endpoint,
        "LORIKEET_ENGINE__HEALTH_PORT": "0",
        "LORIKEET_ENGINE__KV_CACHE_BYTES": str(64 * MIB),
        "LORIKEET_ENGINE__ADAPTER_POOL_BYTES": str(16 * MIB),
    }
    command = [sys.executable, "-m", "lorikeet_platform.cli", "engine", *options]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


async def generate(endpoint: str, model_dir: Path, n_tokens: int) -> int:
    """Have some tokens made; returns how many came."""
    client = EngineClient(endpoint=endpoint, model_dir=model_dir)
    await client.start()
    try:
        await client.wait_ready(READY_WITHIN_S)
        async with asyncio.timeout(READY_WITHIN_S):
            generation = await client.generate(
                GenerationRequest(
                    request_id="a",
                    tenant="tenant",
                    prompt=tuple(range(100, 140)),
                    max_tokens=n_tokens,
                    sampling=SamplingParams(),
                )
            )
            async for _ in generation:
                pass
            return generation.usage.completion_tokens
    finally:
        await client.stop()


def timelines(folder: Path) -> list[Path]:
    return list((folder / "tmp").glob("timeline-*.json"))


def test_a_profiled_engine_leaves_a_timeline_of_as_many_steps_and_serves_on(
    embedded_model_dir: Path, tmp_path: Path, endpoint: str
) -> None:
    engine = start_engine(tmp_path, embedded_model_dir, endpoint, "--profile", str(N_STEPS))
    n_tokens = asyncio.run(generate(endpoint, embedded_model_dir, N_WARM_UP + N_STEPS + 10))
    engine.terminate()
    _, said = engine.communicate(timeout=30)
    assert engine.returncode == 0, said
    assert n_tokens > N_WARM_UP + N_STEPS
    lines = [line for line in said.splitlines() if "timeline" in line]
    assert len(lines) == 1, said
    found = re.search(rf"timeline of {N_STEPS} steps: (\S+) ", lines[0])
    assert found is not None, lines[0]
    assert timelines(tmp_path) == [Path(found[1])]

    content: dict[str, Any] = json.loads(Path(found[1]).read_text())
    events = complete_events(content)
    assert_nested(events)
    steps = [event for event in events if event["cat"] == "step"]
    assert [(step["name"], step["args"]["rows"], step["args"]["tokens"]) for step in steps] == [
        ("decode step", 1, 1)
    ] * N_STEPS
    for step in steps:
        within = inside(step, events)
        assert [event["name"] for event in within if event["name"] in PHASES] == PHASES
        forward = next(event for event in within if event["name"] == "forward")
        ops = [event for event in inside(forward, within) if event["cat"] == "op"]
        assert [op["name"] for op in ops if op["args"].get("layer") == 3] == LAYER
        assert len([op for op in ops if op["name"] == "attention"]) == 30
        assert ops[-1]["name"] == "head"


def test_an_engine_that_is_not_profiled_leaves_no_timeline(
    embedded_model_dir: Path, tmp_path: Path, endpoint: str
) -> None:
    engine = start_engine(tmp_path, embedded_model_dir, endpoint)
    asyncio.run(generate(endpoint, embedded_model_dir, 4))
    engine.terminate()
    _, said = engine.communicate(timeout=30)
    assert engine.returncode == 0, said
    assert "timeline" not in said
    assert timelines(tmp_path) == []


def test_a_number_of_steps_that_cannot_be_kept_is_refused_by_name(
    embedded_model_dir: Path, tmp_path: Path, endpoint: str
) -> None:
    engine = start_engine(tmp_path, embedded_model_dir, endpoint, "--profile", "1000000")
    _, said = engine.communicate(timeout=60)
    assert engine.returncode == 2
    assert "--profile: '1000000' is not a number of steps from 1 to 1000" in said
