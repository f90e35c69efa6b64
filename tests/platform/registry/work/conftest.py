"""A worker's jobs run one by one in the test's thread, with tools that tests script."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.tables import AdapterVersion, Job
from lorikeet_platform.jobs.runner import JobRunner
from tests.support.lora_files import tensors, write_files
from tests.support.platform_parts import Uploader
from tests.support.worker_tools import ScriptedTools, job_runner

RunNext = Callable[[], bool]
Push = Callable[..., AdapterVersion]
Reread = Callable[[AdapterVersion], AdapterVersion]


@pytest.fixture
def tools() -> ScriptedTools:
    return ScriptedTools()


@pytest.fixture
def runner(context: PlatformContext, tools: ScriptedTools) -> JobRunner:
    return job_runner(context, tools)


@pytest.fixture
def files(tmp_path: Path) -> tuple[bytes, bytes]:
    written = write_files(tmp_path / "files")
    return written.config.read_bytes(), written.weights.read_bytes()


@pytest.fixture
def run_next(context: PlatformContext, runner: JobRunner) -> RunNext:
    """Runs the oldest job that is queued, whatever its kind; True when that was its end."""

    def run() -> bool:
        with context.db.platform.read() as work:
            job_id = work.scalars(select(Job.id).where(Job.state == "queued").order_by(Job.created_at, Job.id)).first()
        assert job_id is not None
        return runner.run(job_id)

    return run


@pytest.fixture
def push(context: PlatformContext, runner: JobRunner, uploader: Uploader, tmp_path: Path) -> Push:
    """Uploads, seals and validates an adapter made from a seed; returns its version."""

    def push_adapter(seed: int = 0, *, adapter: str = "pirate", **fields: Any) -> AdapterVersion:
        content = write_files(tmp_path / f"{adapter}-{seed}", tensors(seed=seed))
        sealed = uploader.seal(content.config.read_bytes(), content.weights.read_bytes(), adapter=adapter, **fields)
        with context.db.platform.read() as work:
            version = work.get_one(AdapterVersion, (uploader.tenant.id, sealed.json()["id"]))
            job_id = work.scalars(select(Job.id).where(Job.version_id == version.id)).one()
        assert runner.run(job_id)
        with context.db.platform.read() as work:
            return work.get_one(AdapterVersion, (uploader.tenant.id, version.id))

    return push_adapter


@pytest.fixture
def reread(context: PlatformContext) -> Reread:
    def read_again(version: AdapterVersion) -> AdapterVersion:
        with context.db.platform.read() as work:
            return work.get_one(AdapterVersion, (version.tenant_id, version.id))

    return read_again


@pytest.fixture
def keys(context: PlatformContext) -> Callable[[str], set[str]]:
    """What the store holds under a prefix."""
    return lambda prefix: {entry.key for entry in context.store.entries(prefix)}
