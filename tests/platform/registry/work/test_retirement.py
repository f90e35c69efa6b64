"""A version that left service: the engine is told, what runs is waited for, and then ended."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import select

from lorikeet_engine.errors import EngineUnavailable
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.tables import AdapterVersion, Job
from lorikeet_platform.jobs.runner import JobRunner
from lorikeet_platform.registry.versions import lifecycle
from lorikeet_platform.registry.versions.lifecycle import Moved, Step
from tests.platform.registry.work.conftest import Push, Reread
from tests.support.platform_parts import FakeClock, Uploader
from tests.support.worker_tools import DAY_US, ScriptedTools

Act = Callable[..., Moved]


@pytest.fixture
def version(push: Push) -> AdapterVersion:
    """The second version of an adapter: no alias points at it."""
    push(1)
    return push(2)


@pytest.fixture
def act(context: PlatformContext, uploader: Uploader, clock: FakeClock) -> Act:
    """Takes one of `lifecycle`'s steps on a version."""

    def take_step(name: str, version: AdapterVersion, **options: object) -> Moved:
        step = Step(tenant_id=version.tenant_id, adapter="pirate", number=version.number, actor="test", now=clock.now)
        with context.db.platform.unit_of_work() as work:
            moved: Moved = getattr(lifecycle, name)(work, step, **options)
        return moved

    return take_step


def retire(act: Act, version: AdapterVersion) -> str:
    (job_id,) = act("retire", version, keep_us=7 * DAY_US).job_ids
    return job_id


def state_of(context: PlatformContext, job_id: str) -> tuple[str, int]:
    with context.db.platform.read() as work:
        job = work.scalars(select(Job).where(Job.id == job_id)).one()
    return job.state, job.attempt


def test_the_engine_hears_of_it_when_requests_resolved_before_have_begun(
    act: Act, version: AdapterVersion, runner: JobRunner, tools: ScriptedTools, clock: FakeClock
) -> None:
    job_id = retire(act, version)
    clock.advance(1.9)
    assert not runner.run(job_id)
    assert tools.engine.named("retire") == []
    clock.advance(0.2)
    assert runner.run(job_id)
    assert tools.engine.named("retire") == [[version.tenant_id, version.digest, False]]


def test_what_runs_is_waited_for_without_a_worker_and_ended_after_two_minutes(
    act: Act,
    version: AdapterVersion,
    runner: JobRunner,
    tools: ScriptedTools,
    clock: FakeClock,
    context: PlatformContext,
) -> None:
    assert version.digest is not None
    tools.engine.running[version.tenant_id, version.digest] = 3
    job_id = retire(act, version)
    for _ in range(59):
        clock.advance(2)
        assert not runner.run(job_id)
        assert state_of(context, job_id) == ("queued", 0)
    assert not any(force for *_, force in tools.engine.named("retire"))
    clock.advance(2)
    assert runner.run(job_id)
    assert tools.engine.named("retire")[-1] == [version.tenant_id, version.digest, True]
    assert tools.engine.running == {}


def test_a_quarantined_version_is_ended_at_once(
    act: Act, version: AdapterVersion, runner: JobRunner, tools: ScriptedTools
) -> None:
    assert version.digest is not None
    tools.engine.running[version.tenant_id, version.digest] = 3
    (job_id,) = act("quarantine", version).job_ids
    assert runner.run(job_id)
    assert tools.engine.named("retire") == [[version.tenant_id, version.digest, True]]


def test_a_twin_that_is_ready_keeps_the_adapter_in_service(
    act: Act, push: Push, runner: JobRunner, tools: ScriptedTools, clock: FakeClock
) -> None:
    push(1)
    twin, version = push(3, adapter="twin"), push(3)
    assert twin.digest == version.digest
    job_id = retire(act, version)
    clock.advance(2)
    assert runner.run(job_id)
    assert tools.engine.named("retire") == []


def test_a_version_that_was_restored_is_left_in_service(
    act: Act, version: AdapterVersion, runner: JobRunner, tools: ScriptedTools, clock: FakeClock
) -> None:
    job_id = retire(act, version)
    act("restore", version)
    clock.advance(2)
    assert runner.run(job_id)
    assert tools.engine.named("retire") == []


def test_a_version_restored_while_the_engine_is_told_otherwise_is_warmed_again(
    act: Act, version: AdapterVersion, runner: JobRunner, tools: ScriptedTools, clock: FakeClock, reread: Reread
) -> None:
    job_id = retire(act, version)
    told = tools.engine.running_on
    tools.engine.calls.clear()

    def restored_meanwhile(tenant: str, digest: str) -> int:
        act("restore", version)
        return told(tenant, digest)

    tools.engine.running_on = restored_meanwhile  # type: ignore[method-assign]
    clock.advance(2)
    assert runner.run(job_id)
    assert [name for name, *_ in tools.engine.calls if name in ("retire", "warm")] == ["retire", "warm"]
    assert reread(version).state == "ready"


def test_a_version_retired_again_while_its_first_job_ends_is_not_forgotten(
    act: Act, version: AdapterVersion, runner: JobRunner, tools: ScriptedTools, clock: FakeClock
) -> None:
    job_id = retire(act, version)
    act("restore", version)
    clock.advance(2)
    handler = runner._handlers["retire"]
    perform = handler.perform

    def retired_meanwhile(job: object) -> object:
        write = perform(job)  # type: ignore[arg-type]
        assert act("retire", version, keep_us=7 * DAY_US).job_ids == (job_id,)
        handler.perform = perform  # type: ignore[method-assign]
        return write

    handler.perform = retired_meanwhile  # type: ignore[method-assign, assignment]
    assert not runner.run(job_id)
    clock.advance(2)
    assert runner.run(job_id)
    assert tools.engine.named("retire") == [[version.tenant_id, version.digest, False]]


def test_without_an_engine_the_job_waits(
    act: Act,
    version: AdapterVersion,
    runner: JobRunner,
    tools: ScriptedTools,
    clock: FakeClock,
    context: PlatformContext,
) -> None:
    tools.engine.fault = EngineUnavailable("gone")
    job_id = retire(act, version)
    for _ in range(10):
        clock.advance(60)
        assert not runner.run(job_id)
    assert state_of(context, job_id) == ("queued", 0)
    tools.engine.fault = None
    clock.advance(60)
    assert runner.run(job_id)


def test_a_version_restored_and_retired_again_while_the_job_ends_is_that_job_s_again(
    act: Act, version: AdapterVersion, runner: JobRunner, tools: ScriptedTools, clock: FakeClock
) -> None:
    job_id = retire(act, version)
    clock.advance(2)
    handler = runner._handlers["retire"]
    perform = handler.perform

    def meanwhile(job: object) -> object:
        write = perform(job)  # type: ignore[arg-type]
        act("restore", version)
        retire(act, version)  # in the state that the job saw, but after the engine served it again
        handler.perform = perform  # type: ignore[method-assign]
        return write

    handler.perform = meanwhile  # type: ignore[method-assign, assignment]
    assert not runner.run(job_id)
    clock.advance(2)
    assert runner.run(job_id)
    assert len(tools.engine.named("retire")) == 2
