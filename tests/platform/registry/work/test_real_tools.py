"""A worker with its real jail and its real certifier, on a tiny model; only the engine answers from a script."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from fastapi.testclient import TestClient
from sqlalchemy import select

from lorikeet_engine.build import digest_of_model
from lorikeet_engine.certification.process import Certifier
from lorikeet_platform.app import create_tenant_app
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.tables import Job
from lorikeet_platform.jobs.celery_app import create_celery, waker
from lorikeet_platform.registry.work.tools import WorkerTools
from lorikeet_platform.worker import Worker, build_worker, make_tools
from tests.support.platform_parts import CONFIG, WEIGHTS, Tenant, Uploader
from tests.support.reading_model import save_reading_model
from tests.support.tiny_models import save_adapter
from tests.support.worker_tools import ScriptedEngineLink

pytestmark = pytest.mark.slow

CERTIFIED_WITHIN_S = 120.0


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_reading_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def engine(model_dir: Path) -> ScriptedEngineLink:
    return ScriptedEngineLink(model_digest=digest_of_model(model_dir))


@pytest.fixture
def tools(context: PlatformContext, model_dir: Path, engine: ScriptedEngineLink) -> WorkerTools:
    return replace(make_tools(context.settings, model_dir=model_dir), engine=engine)


@pytest.fixture
def celery(context: PlatformContext) -> Celery:
    return create_celery(context.settings)


@pytest.fixture
def worker(context: PlatformContext, celery: Celery, tools: WorkerTools) -> Iterator[Worker]:
    worker = build_worker(context.settings, celery=celery, db=context.db, store=context.store, tools=tools)
    worker.start()
    yield worker
    worker.stop()


@pytest.fixture
def working(context: PlatformContext, celery: Celery, worker: Worker, harbour: Tenant) -> Iterator[Uploader]:
    """The tenant API beside a worker with real tools."""
    with TestClient(create_tenant_app(replace(context, wake=waker(celery)))) as client:
        yield Uploader(client, harbour)


def sealed(uploader: Uploader, folder: Path) -> int:
    """The number of a version made of the adapter in `folder`."""
    answer = uploader.seal((folder / CONFIG).read_bytes(), (folder / WEIGHTS).read_bytes())
    return int(answer.json()["number"])


def verdict(uploader: Uploader, folder: Path) -> dict[str, object]:
    """Of the adapter that PEFT saved in `folder`."""
    path = f"/v1/adapters/pirate/versions/{sealed(uploader, folder)}"
    deadline = time.monotonic() + CERTIFIED_WITHIN_S
    while (version := uploader.client.get(f"{path}?wait=10", headers=uploader.tenant.auth).json())[
        "state"
    ] == "validating":
        assert time.monotonic() < deadline
    return dict(version)


def test_an_adapter_that_peft_saved_is_certified_against_peft_and_one_that_is_none_is_refused(
    working: Uploader, model_dir: Path, tmp_path: Path, engine: ScriptedEngineLink
) -> None:
    options: dict[str, Any] = {
        "target_modules": ["q_proj", "v_proj", "down_proj"],
        "r": 4,
        "lora_alpha": 8,
        "use_rslora": True,
    }
    good = save_adapter(model_dir, tmp_path / "good", **options)
    version = verdict(working, good)
    assert version["state"] == "ready", version
    certificate = version["certificate"]
    assert isinstance(certificate, dict)
    assert (certificate["oracle"], certificate["greedy_agreement"]) == ("peft", 1.0)
    assert certificate["base_model_digest"] == engine.model_digest
    assert certificate["effect"] > 0
    (good / WEIGHTS).write_bytes((good / WEIGHTS).read_bytes()[:-4])
    refused = verdict(working, good)
    assert (refused["state"], refused["certificate"]) == ("rejected", None)
    assert len(engine.named("answers")) == 5  # of the good one alone


def test_a_worker_whose_certifier_computes_stops_in_time_and_leaves_no_process(
    working: Uploader, worker: Worker, tools: WorkerTools, model_dir: Path, tmp_path: Path, context: PlatformContext
) -> None:
    sealed(working, save_adapter(model_dir, tmp_path / "good", target_modules=["q_proj"], r=4))
    assert isinstance(tools.certifier, Certifier)
    deadline = time.monotonic() + 20
    while (child := tools.certifier._child) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    began = time.monotonic()
    worker.stop()
    assert time.monotonic() - began < 5
    assert child.poll() is not None
    with context.db.platform.read() as work:
        job = work.scalars(select(Job)).one()
    assert (job.state, job.attempt, job.last_error) == ("queued", 0, "WorkerStopped")
