"""A content that a version had already: retired while a new one is validated, quarantined by an administrator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lorikeet_engine.errors import AdapterRetired
from lorikeet_platform.auth.actor import ADMINISTRATOR, SYSTEM
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.tables import AdapterVersion
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.jobs.runner import JobRunner
from lorikeet_platform.registry.versions import lifecycle
from lorikeet_platform.registry.versions.lifecycle import Step, quarantine_damaged
from lorikeet_platform.registry.work.references import announce_digest
from tests.platform.registry.work.conftest import Push, Reread, RunNext
from tests.support.lora_files import tensors, write_files
from tests.support.platform_parts import FakeClock, Uploader, a_version
from tests.support.worker_tools import DAY_US, ScriptedTools

Quarantine = Callable[[AdapterVersion, str], None]


@pytest.fixture
def quarantine(context: PlatformContext, clock: FakeClock) -> Quarantine:
    def take_step(version: AdapterVersion, actor: str) -> None:
        with context.db.platform.unit_of_work() as work:
            lifecycle.quarantine(work, a_step(version, actor, clock.now))

    return take_step


def a_step(version: AdapterVersion, actor: str, now: int) -> Step:
    return Step(tenant_id=version.tenant_id, adapter="pirate", number=version.number, actor=actor, now=now)


def seal(uploader: Uploader, folder: Path, adapter: str = "pirate") -> tuple[int, dict[str, object]]:
    """The content of `push(1)`, once more."""
    content = write_files(folder / adapter, tensors(seed=1))
    answer = uploader.seal(content.config.read_bytes(), content.weights.read_bytes(), adapter=adapter)
    return answer.status_code, answer.json()


def test_a_retirement_waits_for_a_validation_of_the_same_content(
    push: Push,
    context: PlatformContext,
    uploader: Uploader,
    runner: JobRunner,
    tools: ScriptedTools,
    clock: FakeClock,
) -> None:
    push(1)
    version = push(2)
    assert version.digest is not None
    with context.db.platform.unit_of_work() as work:
        (job_id,) = lifecycle.retire(work, a_step(version, "key_1", clock.now), keep_us=7 * DAY_US).job_ids
        coming = a_version(work, uploader.tenant, name="twin", state="validating")
        announce_digest(work, version.tenant_id, coming.id, version.digest, now=clock.now)
    for _ in range(10):
        clock.advance(5)
        assert not runner.run(job_id)
    assert tools.engine.named("retire") == []
    with context.db.platform.unit_of_work() as work:
        twin = work.get_one(AdapterVersion, (version.tenant_id, coming.id))
        twin.state, twin.ready_at = "ready", clock.now
    clock.advance(5)
    assert runner.run(job_id)
    assert tools.engine.named("retire") == []


def test_a_retirement_ends_what_runs_after_two_minutes_whoever_is_validated(
    push: Push, context: PlatformContext, uploader: Uploader, runner: JobRunner, tools: ScriptedTools, clock: FakeClock
) -> None:
    push(1)
    version = push(2)
    assert version.digest is not None
    with context.db.platform.unit_of_work() as work:
        (job_id,) = lifecycle.retire(work, a_step(version, "key_1", clock.now), keep_us=7 * DAY_US).job_ids
        coming = a_version(work, uploader.tenant, name="twin", state="validating")
        announce_digest(work, version.tenant_id, coming.id, version.digest, now=clock.now)
    clock.advance(121)
    assert runner.run(job_id)
    assert tools.engine.named("retire") == [[version.tenant_id, version.digest, True]]


def test_a_validation_that_meets_a_retirement_of_its_content_looks_again(
    run_next: RunNext,
    uploader: Uploader,
    files: tuple[bytes, bytes],
    tools: ScriptedTools,
    clock: FakeClock,
) -> None:
    uploader.seal(*files)
    tools.engine.warm_fault = AdapterRetired("retired meanwhile")
    for _ in range(8):
        assert not run_next()
        clock.advance(60)
    tools.engine.warm_fault = None
    assert run_next()
    assert len(tools.certifier.seen) == 1


def test_the_files_of_a_version_that_an_administrator_quarantined_are_refused(
    push: Push, quarantine: Quarantine, uploader: Uploader, tmp_path: Path, reread: Reread
) -> None:
    version = push(1)
    quarantine(version, ADMINISTRATOR)
    assert reread(version).retired_by == ADMINISTRATOR
    for adapter in ("pirate", "another-name"):
        status, body = seal(uploader, tmp_path, adapter)
        assert status == 409
        assert "quarantined" in str(body["error"])
    path = "/v1/adapters/pirate"
    for address in (f"{path}/versions/1", path):  # deleting the version would end its quarantine
        assert uploader.client.delete(address, headers=uploader.tenant.auth).status_code == 409
    assert reread(version).state == "quarantined"


def test_a_content_that_was_quarantined_while_it_was_validated_is_rejected(
    push: Push, quarantine: Quarantine, uploader: Uploader, tmp_path: Path, run_next: RunNext, clock: FakeClock
) -> None:
    version = push(1)
    status, sealed = seal(uploader, tmp_path, "another-name")
    assert status == 202
    quarantine(version, ADMINISTRATOR)
    clock.advance(1)
    run_next()
    run_next()
    path = f"/v1/adapters/another-name/versions/{sealed['number']}"
    shown = uploader.client.get(path, headers=uploader.tenant.auth).json()
    assert (shown["state"], shown["reject_code"]) == ("rejected", "content_quarantined")


def test_damage_that_the_system_found_is_healed_by_the_same_files(
    push: Push, context: PlatformContext, uploader: Uploader, tmp_path: Path, clock: FakeClock, reread: Reread
) -> None:
    version = push(1)
    assert version.digest is not None
    with context.db.platform.unit_of_work() as work:
        quarantine_damaged(work, version.tenant_id, version.digest, now=clock.now)
    assert reread(version).retired_by == SYSTEM
    status, sealed = seal(uploader, tmp_path)
    assert (status, sealed["number"]) == (202, 2)


def test_an_administrator_makes_the_system_s_quarantine_a_decision_and_may_delete_the_version(
    push: Push, context: PlatformContext, quarantine: Quarantine, clock: FakeClock, reread: Reread
) -> None:
    version = push(1)
    quarantine(version, SYSTEM)
    quarantine(version, ADMINISTRATOR)
    assert reread(version).retired_by == ADMINISTRATOR
    with pytest.raises(PlatformError, match="administrator"), context.db.platform.unit_of_work() as work:
        lifecycle.delete(work, a_step(version, "key_1", clock.now))
    with context.db.platform.unit_of_work() as work:
        assert lifecycle.delete(work, a_step(version, ADMINISTRATOR, clock.now)).job_ids
