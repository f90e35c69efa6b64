"""The doctor from end to end: a tenant's requests over HTTP, a live engine, and `lorikeet doctor` beside them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.migrate import upgrade
from lorikeet_platform.db.session import Database
from lorikeet_platform.doctor.rounds import Doctor
from lorikeet_platform.engine_watch.watch import EngineWatch
from lorikeet_platform.settings import Settings
from tests.support.live_engine import MODEL, live_engine, live_model
from tests.support.running_lorikeet import clean_environment
from tests.support.served_model import ServedModel
from tests.support.stack import wait_until
from tests.support.stack_place import GatewayInProcess

pytestmark = pytest.mark.slow

SAMPLE_S = 0.2
SYSTEM = "You are a helpful assistant of a harbour. You speak of ships, tides and weather, and never guess. "


@dataclass
class Harbour:
    """A gateway before a live engine, and one tenant's key."""

    api: httpx.Client
    admin: httpx.Client
    token_file: Path

    def ask(self, content: str) -> None:
        body = {"model": MODEL, "messages": [{"role": "user", "content": content}], "max_tokens": 4, "temperature": 0}
        answer = self.api.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text

    def doctor(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "lorikeet_platform.cli", "doctor", *arguments],
            env=clean_environment()
            | {"LORIKEET_ADMIN_URL": str(self.admin.base_url), "LORIKEET_ADMIN_TOKEN_FILE": str(self.token_file)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def read(self, path: str) -> dict[str, Any]:
        answer = self.admin.get(path)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


def often_looked_at(context: PlatformContext) -> PlatformContext:
    """A doctor's two minutes in seconds."""
    registry, watch = CollectorRegistry(), EngineWatch(context.engine_client, every_s=SAMPLE_S)
    degraded = context.metrics.limits.degraded
    doctor = Doctor(
        watch, db=context.db, client=context.engine_client, degraded=degraded, registry=registry, least_s=1.0
    )
    return replace(context, watch=watch, doctor=doctor, metrics_registry=registry)


@pytest.fixture
def harbour(tmp_path: Path) -> Iterator[Harbour]:
    (tmp_path / "model").mkdir()
    (tmp_path / "data").mkdir()
    model = live_model(tmp_path / "model")
    with live_engine(model) as engine:
        settings = Settings(data_dir=tmp_path / "data", engine_endpoint=engine.endpoint, model_name=MODEL)
        upgrade(settings.resolved_database_url)
        with closing(Database(settings.resolved_database_url)) as db:
            gateway = GatewayInProcess(
                settings, ServedModel(model.folder, model.loaded.digest), db, changed=often_looked_at
            )
            gateway.start()
            assert gateway.context is not None
            token = {"authorization": f"Bearer {gateway.context.admin_token}"}
            with httpx.Client(base_url=gateway.admin, headers=token, trust_env=False) as admin:
                admin.post("/admin/v1/tenants", json={"slug": "harbour"}).raise_for_status()
                key = admin.post("/admin/v1/tenants/harbour/keys", json={"name": "first"}).raise_for_status().json()
                ours = {"authorization": f"Bearer {key['secret']}"}
                with httpx.Client(base_url=gateway.api, headers=ours, trust_env=False) as api:
                    yield Harbour(api, admin, tmp_path / "data" / "admin.token")
            gateway.stop()


def test_a_tenants_prompts_with_the_time_in_front_are_found_and_the_command_says_so(harbour: Harbour) -> None:
    wait_until(lambda: harbour.read("/admin/v1/findings")["examined_s"], 20.0)
    healthy = harbour.doctor()
    assert healthy.returncode == 0, healthy.stderr
    for i in range(16):
        harbour.ask(f"2026-11-30 10:{i:02}:{(7 * i) % 60:02} {SYSTEM}")
    wait_until(lambda: harbour.read("/admin/v1/findings")["findings"], 20.0)

    printed = harbour.doctor()
    assert printed.returncode == 11
    assert "(dynamic_prompt_head)" in printed.stdout
    assert "harbour on the base model" in printed.stdout
    told = harbour.doctor("--json")
    assert told.returncode == 11
    [finding] = json.loads(told.stdout)["findings"]
    evidence = {item["label"]: item["value"] for item in finding["evidence"]}
    assert evidence["first different token"] in ("position 14", "position 15")

    lines = harbour.admin.get("/metrics").text.splitlines()
    assert 'lorikeet_findings{rule="dynamic_prompt_head"} 1.0' in lines
    assert 'lorikeet_findings{rule="engine_away"} 0.0' in lines
    page = harbour.read("/admin/v1/engine")
    assert (page["state"], page["model"]) == ("ready", MODEL)
    assert sum(row["bytes"] for row in page["design"]["memory"]) == page["design"]["available_bytes"]
    latency = {(row["measure"], row["kind"]): row["count"] for row in page["performance"]["latency"]}
    assert latency["ttft", "all"] == 16
    for phase in page["performance"]["phases"]:
        expected = phase["intensity"] / page["performance"]["ridge"]
        assert phase["mfu"] / phase["mbu"] == pytest.approx(expected)
