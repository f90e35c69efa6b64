"""Plans over HTTP and on a terminal: whose engine they are about, and what is refused in which words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from lorikeet_engine.client import EngineDesign, Steps
from lorikeet_engine.simulation.shipped import MODELS
from lorikeet_engine.stats import StepSample
from lorikeet_platform.cli import app
from lorikeet_platform.cli.console import CommandFailed, ExitCode
from lorikeet_platform.context import PlatformContext
from tests.support.platform_parts import MeasuredEngine

ASKED = {"prompt_tokens": 256, "output_tokens": 40, "concurrency": 4}
SHIPPED = {"model": "qwen3-8b", "device": "h200"}


@pytest.fixture
def owner(admin: TestClient, as_admin: dict[str, str]) -> TestClient:
    admin.headers.update(as_admin)
    return admin


@pytest.fixture
def engine(
    context: PlatformContext, design: EngineDesign, steps: list[StepSample], monkeypatch: pytest.MonkeyPatch
) -> MeasuredEngine:
    """An engine that describes itself and remembers its steps."""
    client = context.engine_client
    assert isinstance(client, MeasuredEngine)

    async def its_design() -> EngineDesign:
        client.info  # noqa: B018 (raises when the engine is down)
        return design

    async def its_steps(after_s: float = float("-inf")) -> Steps:
        return Steps(0, 1000.0, steps)

    monkeypatch.setattr(client, "design", its_design)
    monkeypatch.setattr(client, "steps", its_steps)
    return client


def planned(owner: TestClient, **asked: Any) -> dict[str, Any]:
    response = owner.post("/admin/v1/plan", json=ASKED | asked)
    assert response.status_code == 200, response.text
    plan: dict[str, Any] = response.json()
    return plan


def refused(owner: TestClient, **asked: Any) -> dict[str, Any]:
    response = owner.post("/admin/v1/plan", json=ASKED | asked)
    assert response.status_code >= 400
    error: dict[str, Any] = response.json()["error"]
    return error


def test_a_stranger_gets_no_plan(admin: TestClient) -> None:
    assert admin.post("/admin/v1/plan", json=ASKED | SHIPPED).status_code == 401


def test_a_shipped_model_and_device_need_no_engine(owner: TestClient, context: PlatformContext) -> None:
    engine = context.engine_client
    assert isinstance(engine, MeasuredEngine)
    engine.is_up = False
    plan = planned(owner, **SHIPPED)
    assert (plan["basis"], plan["model"], plan["device"]) == ("formulas", "qwen3-8b", "h200")
    assert plan["estimate"]["itl_s"]["low"] is None
    assert refused(owner, model="qwen3-8b")["code"] == "engine_unavailable"


def test_without_names_the_plan_is_of_the_engine_that_runs(
    owner: TestClient, engine: MeasuredEngine, design: EngineDesign
) -> None:
    plan = planned(owner)
    assert [(row["name"], row["bytes"]) for row in plan["memory"]] == design.memory
    assert plan["pool_tokens"] == design.n_blocks * design.block_size
    assert plan["model"] == engine.info.model_name


def test_the_same_settings_named_again_divide_the_memory_as_the_engine_did(
    owner: TestClient, engine: MeasuredEngine, design: EngineDesign
) -> None:
    plan = planned(owner, knobs={"max_num_seqs": design.max_num_seqs})
    assert [(row["name"], row["bytes"]) for row in plan["memory"]] == design.memory


def test_other_settings_divide_it_anew(owner: TestClient, engine: MeasuredEngine, design: EngineDesign) -> None:
    plan = planned(owner, knobs={"kv_cache_bytes": 2 * int(dict(design.memory)["KV pool"])})
    assert plan["pool_tokens"] == pytest.approx(2 * design.n_blocks * design.block_size, rel=0.02)
    assert sum(row["bytes"] for row in plan["memory"]) == plan["available_bytes"] == design.available_bytes


def test_a_live_plan_says_what_it_stands_on(owner: TestClient, engine: MeasuredEngine, steps: list[StepSample]) -> None:
    plan = planned(owner, live=True)
    assert plan["basis"] == "live"
    assert plan["calibration"]["steps"] == len(steps)
    assert {"batch", "context", "prefill_tokens", "adapter_bytes"} <= {
        row["name"] for row in plan["calibration"]["ranges"]
    }
    itl = plan["estimate"]["itl_s"]
    assert itl["low"] < itl["value"] < itl["high"]


def test_a_live_question_beyond_the_data_is_refused(owner: TestClient, engine: MeasuredEngine) -> None:
    error = refused(owner, live=True, concurrency=14)
    assert (error["code"], error["param"]) == ("invalid_value", "concurrency")
    assert "only been seen at 1 to 8" in error["message"]


def test_a_live_plan_is_of_no_other_model_or_device(owner: TestClient, engine: MeasuredEngine) -> None:
    assert refused(owner, live=True, model="qwen3-8b")["param"] == "model"
    assert refused(owner, live=True, device="h200")["param"] == "device"


def test_a_live_plan_is_of_no_other_block_size(owner: TestClient, engine: MeasuredEngine, design: EngineDesign) -> None:
    """What a step costs depends on it, and no step was ever made with another one."""
    error = refused(owner, live=True, knobs={"block_size": 2 * design.block_size})
    assert (error["code"], error["param"]) == ("invalid_value", "knobs.block_size")
    assert planned(owner, live=True, knobs={"block_size": design.block_size})["basis"] == "live"


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "no-such-model"])
def test_models_are_shipped_ones_and_no_files_of_the_gateway(owner: TestClient, name: str) -> None:
    error = refused(owner, **SHIPPED | {"model": name})
    assert (error["code"], error["param"]) == ("invalid_value", "model")
    assert "qwen3-8b" in error["message"]


def test_fields_are_refused_by_their_names(owner: TestClient) -> None:
    assert refused(owner, **SHIPPED, prompt_tokens=0)["param"] == "prompt_tokens"
    assert refused(owner, **SHIPPED, knobs={"threads": 2})["param"] == "knobs.threads"
    assert refused(owner, **SHIPPED, requests_per_s=1.0)["param"] == "concurrency"
    assert refused(owner, **SHIPPED, knobs={"block_size": 24})["param"] == "knobs.block_size"


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["plan", *arguments])
    if isinstance(result.exception, CommandFailed):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


OFFLINE = ("--model", "qwen3-8b", "--device", "h200", "--prompt", "512", "--output", "64")


def test_the_command_prints_every_part_of_a_plan() -> None:
    printed = run(*OFFLINE, "--concurrency", "4", "--adapters", "100", "--rank", "16", "--block-size", "32")
    for part in ("MEMORY", "SIZING", "KV per request", "CONTEXT", "BATCH", "ADAPTERS", "ESTIMATE", "max_num_seqs"):
        assert part in printed
    assert "LORIKEET_ENGINE__MAX_NUM_SEQS=" in printed


def test_the_commands_json_is_the_apis() -> None:
    plan = json.loads(run(*OFFLINE, "--rate", "2.5", "--max-num-seqs", "16", "--json"))
    assert plan["replicas"] == 1
    assert plan["basis"] == "formulas"


def test_the_command_takes_a_models_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((MODELS / "smollm2-135m.json").read_text())
    printed = run("--model", str(tmp_path), *OFFLINE[2:], "--concurrency", "4")
    assert printed.startswith(str(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Say concurrency or requests_per_s"),
        (("--concurrency", "2", "--block-size", "24"), "block_size"),
        (("--concurrency", "2", "--module", "q_proj"), "--module needs --adapters"),
        (("--concurrency", "2", "--rank", "64"), "--rank needs --adapters"),
        (
            ("--concurrency", "2", "--admin-url", "http://10.0.0.1"),
            "--admin-url is of no use with --model and --device",
        ),
        (("--rate", "0"), "requests_per_s"),
    ],
)
def test_the_command_says_what_it_cannot_plan(arguments: tuple[str, ...], words: str) -> None:
    with pytest.raises(CommandFailed, match=words) as caught:
        run(*OFFLINE, *arguments)
    assert caught.value.exit_code == ExitCode.USAGE
