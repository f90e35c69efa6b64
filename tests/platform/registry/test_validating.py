"""The validation job, on real files, with a real worker thread where it says so."""

from __future__ import annotations

import hashlib
import pickle
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import func, select

from lorikeet_adapters.source import AdapterSource
from lorikeet_platform.app import create_tenant_app
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.tables import AdapterVersion, Alias, Job, Upload, UploadSlice
from lorikeet_platform.jobs.celery_app import create_celery, waker
from lorikeet_platform.jobs.runner import JobRunner
from lorikeet_platform.registry.validation import VersionValidator, file_key
from lorikeet_platform.worker import build_worker
from tests.support.lora_files import TABLE, tensors, write_files
from tests.support.platform_parts import CONFIG, WEIGHTS, FakeClock, Tenant, Uploader


@pytest.fixture
def runner(context: PlatformContext, clock: FakeClock) -> JobRunner:
    validator = VersionValidator(
        db=context.db,
        store=context.store,
        table=TABLE,
        max_rank=8,
        itemsize=2,
        temporary_dir=context.settings.temporary_dir,
        clock=clock,
    )
    return JobRunner(context.db, {"validate": validator}, clock=clock)


@pytest.fixture
def files(tmp_path: Path) -> tuple[bytes, bytes]:
    written = write_files(tmp_path / "files")
    return written.config.read_bytes(), written.weights.read_bytes()


def run_next(context: PlatformContext, runner: JobRunner) -> None:
    with context.db.read() as work:
        job_id = work.scalars(select(Job.id).where(Job.state == "queued").order_by(Job.created_at, Job.id)).first()
    assert job_id is not None
    assert runner.run(job_id)


def shown(uploader: Uploader, number: int = 1) -> dict[str, Any]:
    path = f"/v1/adapters/pirate/versions/{number}"
    version: dict[str, Any] = uploader.client.get(path, headers=uploader.tenant.auth).json()
    return version


def test_a_good_adapter_becomes_ready_and_live(
    context: PlatformContext, runner: JobRunner, uploader: Uploader, files: tuple[bytes, bytes]
) -> None:
    uploader.seal(*files)
    run_next(context, runner)
    version = shown(uploader)
    assert (version["state"], version["rank"], version["reject_code"]) == ("ready", 4, None)
    assert version["target_modules"] == ["self_attn.q_proj", "self_attn.v_proj"]
    assert version["serving_bytes"] > 0
    assert version["ready_at"] >= version["created_at"]
    adapter = uploader.client.get("/v1/adapters/pirate", headers=uploader.tenant.auth).json()
    assert adapter["aliases"] == {"live": 1}
    normalised = AdapterSource(context.store).read_normalised(uploader.tenant.id, version["digest"])
    assert hashlib.sha256(normalised).hexdigest() == version["digest"]
    for content in files:
        assert context.store.read(file_key(uploader.tenant.id, hashlib.sha256(content).hexdigest())) == content
    assert list(context.store.entries("uploads/")) == []
    assert list(context.settings.temporary_dir.iterdir()) == []


def test_many_slices_make_one_file(
    context: PlatformContext, runner: JobRunner, uploader: Uploader, files: tuple[bytes, bytes]
) -> None:
    weights = uploader.create(files[1]).headers["location"]
    for begin in range(0, len(files[1]), 700):
        uploader.append(weights, begin, files[1][begin : begin + 700])
    uploads = {CONFIG: uploader.whole(files[0], filename=CONFIG), WEIGHTS: weights.rpartition("/")[2]}
    uploader.seal_uploads(uploads)
    with context.db.read() as work:
        assert (work.scalar(select(func.count()).select_from(UploadSlice)) or 0) > 5
    run_next(context, runner)
    assert shown(uploader)["state"] == "ready"


def test_bytes_that_are_not_the_declared_file_are_rejected(
    context: PlatformContext, runner: JobRunner, uploader: Uploader, files: tuple[bytes, bytes]
) -> None:
    created = uploader.create(files[1], sha256="0" * 64)
    uploader.append(created.headers["location"], 0, files[1])
    uploads = {
        CONFIG: uploader.whole(files[0], filename=CONFIG),
        WEIGHTS: created.headers["location"].rpartition("/")[2],
    }
    uploader.seal_uploads(uploads)
    run_next(context, runner)
    version = shown(uploader)
    assert (version["state"], version["reject_code"]) == ("rejected", "checksum_mismatch")
    assert WEIGHTS in version["reject_detail"]


@pytest.mark.parametrize(
    ("weights", "changes", "code"),
    [
        (pickle.dumps({"lora_A": [0.0] * 64}), {}, "unsupported_format"),
        (None, {"r": 99}, "rank_too_large"),
        (None, {"modules_to_save": ["lm_head"]}, "feature_unsupported"),
    ],
)
def test_a_bad_adapter_is_rejected_by_name_and_leaves_nothing(
    context: PlatformContext,
    runner: JobRunner,
    uploader: Uploader,
    tmp_path: Path,
    weights: bytes | None,
    changes: dict[str, Any],
    code: str,
) -> None:
    bad = write_files(tmp_path / "bad", weights, **changes)
    uploader.seal(bad.config.read_bytes(), bad.weights.read_bytes())
    run_next(context, runner)
    version = shown(uploader)
    assert version["state"] == "rejected"
    assert version["reject_code"] == code
    assert version["reject_detail"]
    assert list(context.store.entries("")) == []
    with context.db.read() as work:
        assert work.scalars(select(Alias)).all() == []
        assert {upload.state for upload in work.scalars(select(Upload))} == {"consumed"}


def test_live_moves_only_on_request(
    context: PlatformContext, runner: JobRunner, uploader: Uploader, tmp_path: Path
) -> None:
    def push(seed: int, **fields: Any) -> None:
        content = write_files(tmp_path / str(seed), tensors(seed=seed))
        response = uploader.seal(content.config.read_bytes(), content.weights.read_bytes(), **fields)
        if response.status_code == 202:
            run_next(context, runner)

    def live() -> int:
        number: int = uploader.client.get("/v1/adapters/pirate", headers=uploader.tenant.auth).json()["aliases"]["live"]
        return number

    push(1)
    push(2)
    assert live() == 1
    push(3, alias="live")
    assert live() == 3
    push(2, alias="live")  # exists already: no new version, but the alias moves
    assert live() == 2


def test_a_late_verdict_takes_live_back_from_no_newer_version(
    context: PlatformContext, runner: JobRunner, uploader: Uploader, tmp_path: Path
) -> None:
    contents = [write_files(tmp_path / str(seed), tensors(seed=seed)) for seed in (1, 2)]
    for content in contents:
        uploader.seal(content.config.read_bytes(), content.weights.read_bytes(), alias="live")
    with context.db.read() as work:
        first, second = work.scalars(select(Job.id).order_by(Job.id)).all()

    def live() -> int:
        number: int = uploader.client.get("/v1/adapters/pirate", headers=uploader.tenant.auth).json()["aliases"]["live"]
        return number

    assert runner.run(second)
    assert live() == 2
    assert runner.run(first)
    assert (shown(uploader, 1)["state"], live()) == ("ready", 2)
    uploader.seal(contents[0].config.read_bytes(), contents[0].weights.read_bytes(), alias="live")
    assert live() == 1  # asked for now


def test_other_files_of_the_same_adapter_share_one_image_and_say_so(
    context: PlatformContext, runner: JobRunner, uploader: Uploader, tmp_path: Path
) -> None:
    for number, inference_mode in enumerate([False, True]):
        content = write_files(tmp_path / str(number), inference_mode=inference_mode)
        uploader.seal(content.config.read_bytes(), content.weights.read_bytes())
        run_next(context, runner)
    first, second = shown(uploader, 1), shown(uploader, 2)
    assert first["digest"] == second["digest"]
    assert second["warnings"][-1] == "the same content as version 1"
    assert len(list(context.store.entries("images/"))) == 1


def test_two_tenants_equal_files_are_two_images(
    context: PlatformContext, runner: JobRunner, uploader: Uploader, orchard: Tenant, files: tuple[bytes, bytes]
) -> None:
    uploader.seal(*files)
    Uploader(uploader.client, orchard).seal(*files)
    run_next(context, runner)
    run_next(context, runner)
    assert len(list(context.store.entries("images/"))) == 2


def test_lost_slices_are_our_fault_and_end_as_failed_after_five_attempts(
    context: PlatformContext, runner: JobRunner, uploader: Uploader, files: tuple[bytes, bytes], clock: FakeClock
) -> None:
    uploader.seal(*files)
    for entry in list(context.store.entries("uploads/")):
        context.store.delete(entry.key)
    with context.db.read() as work:
        job_id = work.scalars(select(Job.id)).one()
    for attempt in range(1, 6):
        assert shown(uploader)["state"] == "validating"
        assert runner.run(job_id) is (attempt == 5)
        assert not runner.run(job_id)  # not before its time
        clock.advance(60)
    assert shown(uploader)["state"] == "failed_internal"
    with context.db.read() as work:
        job = work.scalars(select(Job)).one()
    assert (job.state, job.attempt, job.last_error) == ("failed", 5, "BlobMissing")


@pytest.fixture
def working_api(context: PlatformContext) -> Iterator[TestClient]:
    """The tenant API with Celery's in-memory broker and a worker thread, as in `lorikeet up`."""
    celery = create_celery(context.settings)
    worker = build_worker(context.settings, celery=celery, db=context.db, store=context.store, table=TABLE)
    worker.start()
    with TestClient(create_tenant_app(replace(context, wake=waker(celery)))) as client:
        yield client
    worker.stop()


@pytest.mark.slow
def test_a_worker_that_is_busy_is_left_behind_in_time(
    context: PlatformContext, job_of_a_version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def work_for_long(_validator: VersionValidator, _job: object) -> None:
        begun.set()
        may_end.wait(30)
        raise RuntimeError

    monkeypatch.setattr(VersionValidator, "perform", work_for_long)
    monkeypatch.setattr("lorikeet_platform.worker.STOP_TIMEOUT_S", 0.5)
    celery = create_celery(context.settings)
    worker = build_worker(context.settings, celery=celery, db=context.db, store=context.store, table=TABLE)
    worker.start()
    waker(celery)(job_of_a_version)
    assert begun.wait(10)
    started_at = time.monotonic()
    worker.stop()
    elapsed_s = time.monotonic() - started_at
    may_end.set()
    assert 0.4 < elapsed_s < 3


@pytest.fixture
def job_of_a_version(context: PlatformContext, uploader: Uploader, files: tuple[bytes, bytes]) -> str:
    uploader.seal(*files)
    with context.db.read() as work:
        return work.scalars(select(Job.id)).one()


@pytest.mark.slow
def test_an_upload_becomes_ready_or_rejected_by_a_worker_that_a_message_woke(
    working_api: TestClient, harbour: Tenant, files: tuple[bytes, bytes], context: PlatformContext
) -> None:
    uploader = Uploader(working_api, harbour)
    started_at = time.monotonic()
    good, bad = uploader.seal(*files).json(), uploader.seal(files[0], b"\x80\x04pickle").json()
    for version, state in ((good, "ready"), (bad, "rejected")):
        path = f"/v1/adapters/pirate/versions/{version['number']}?wait=10"
        assert working_api.get(path, headers=harbour.auth).json()["state"] == state
    assert time.monotonic() - started_at < 10  # a message woke it, not the sweeper's next round
    with context.db.read() as work:
        assert work.scalars(select(AdapterVersion.state).order_by(AdapterVersion.number)).all() == ["ready", "rejected"]
