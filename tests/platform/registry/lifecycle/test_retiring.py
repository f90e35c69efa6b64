"""Versions leave service and come back, adapters end; each step once, and by name when it is refused."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select, update

from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.tables import Adapter, AdapterVersion, AliasChange, Job
from tests.support.platform_parts import FakeClock, Tenant, Uploader, a_version
from tests.support.registry_port import Port, refusal
from tests.support.scripted_engine import ScriptedEngine

DAY_S = 24 * 3600
PIRATE = "/adapters/pirate"


def jobs(context: PlatformContext) -> list[tuple[str, float]]:
    """Kinds of the unfinished jobs, and in how many seconds each may begin."""
    with context.db.platform.read() as work:
        rows = work.scalars(select(Job).order_by(Job.created_at, Job.id)).all()
        return [(job.kind, (job.run_after - context.clock()) / 1_000_000) for job in rows if job.state == "queued"]


def number_of(context: PlatformContext, version_id: str) -> int:
    with context.db.platform.read() as work:
        return work.scalars(select(AdapterVersion.number).where(AdapterVersion.id == version_id)).one()


def test_a_version_is_retired_and_restored(
    port: Port, pirate: list[str], context: PlatformContext, clock: FakeClock
) -> None:
    retired = port.act(2, "retire", {"reason": "superseded"})
    assert retired.status_code == 200
    version = retired.json()
    assert (version["state"], version["retire_reason"]) == ("retired", "superseded")
    assert version["retired_at"] == clock.now // 1_000_000
    assert version["purge_after"] == version["retired_at"] + 7 * DAY_S
    assert jobs(context) == [("retire", 2.0)]
    assert port.act(2, "retire").json() == version  # again: nothing more happens
    assert jobs(context) == [("retire", 2.0)]
    restored = port.act(2, "restore").json()
    assert [restored[name] for name in ("state", "retired_at", "retire_reason", "purge_after")] == [
        "ready",
        *[None] * 3,
    ]
    assert port.act(2, "restore").json() == restored


def test_a_version_that_an_alias_points_at_cannot_leave(
    port: Port, pirate: list[str], context: PlatformContext
) -> None:
    port.put_alias("best", (1, 50), (2, 50))
    for response in (port.act(1, "retire"), port.call("DELETE", f"{PIRATE}/versions/1")):
        assert refusal(response) == (409, "state_conflict", None)
        assert "'best', 'live'" in response.json()["error"]["message"]
    assert (port.state(1), jobs(context)) == ("ready", [])
    port.put_alias("live", 3)
    port.call("DELETE", f"{PIRATE}/aliases/best")
    assert port.act(1, "retire").status_code == 200


def test_a_version_cannot_be_restored_when_its_time_is_over(port: Port, pirate: list[str], clock: FakeClock) -> None:
    port.act(2, "retire")
    clock.advance(7 * DAY_S - 1)
    assert port.act(2, "restore").status_code == 200
    port.act(2, "retire")
    clock.advance(7 * DAY_S)
    assert refusal(port.act(2, "restore")) == (409, "state_conflict", None)


def test_force_ends_what_runs_unless_another_version_has_the_same_content(
    port: Port, pirate: list[str], context: PlatformContext, engine: ScriptedEngine, harbour: Tenant
) -> None:
    port.act(3, "retire")
    assert engine.retired == []
    port.act(2, "retire", {"force": True})
    assert engine.retired == [(harbour.id, pirate[2], True)]
    with context.db.platform.unit_of_work() as work:
        for number in (4, 5):
            a_version(work, harbour, name="pirate", number=number, live=False).digest = "e" * 64
    port.act(4, "retire", {"force": True})
    assert len(engine.retired) == 1
    engine.is_up = False
    assert port.act(5, "retire", {"force": True}).json()["state"] == "retired"  # nothing runs without an engine


def test_a_ready_version_is_deleted_by_way_of_its_retirement(
    port: Port, pirate: list[str], context: PlatformContext, clock: FakeClock
) -> None:
    deleted = port.call("DELETE", f"{PIRATE}/versions/2")
    assert deleted.status_code == 202
    assert (deleted.json()["state"], deleted.json()["purge_after"]) == ("retired", clock.now // 1_000_000)
    assert jobs(context) == [("retire", 2.0)]
    assert refusal(port.act(2, "restore")) == (409, "state_conflict", None)


@pytest.mark.parametrize("state", ["rejected", "failed_internal", "retired", "quarantined"])
def test_what_is_not_in_service_is_purged_at_once(
    port: Port, pirate: list[str], context: PlatformContext, harbour: Tenant, state: str
) -> None:
    with context.db.platform.unit_of_work() as work:
        a_version(work, harbour, name="pirate", number=4, state=state)
    assert port.call("DELETE", f"{PIRATE}/versions/4").status_code == 202
    assert [kind for kind, _ in jobs(context)] == ["purge"]
    port.call("DELETE", f"{PIRATE}/versions/4")
    assert [kind for kind, _ in jobs(context)] == ["purge"]


def test_a_purged_version_stays_as_a_record_and_its_number_is_never_used_again(
    port: Port, pirate: list[str], context: PlatformContext, uploader: Uploader
) -> None:
    with context.db.platform.unit_of_work() as work:
        work.execute(update(AdapterVersion).where(AdapterVersion.number == 3).values(state="purged"))
    assert port.call("DELETE", f"{PIRATE}/versions/3").json()["state"] == "purged"
    assert jobs(context) == []
    for action in ("retire", "restore", "retry"):
        assert refusal(port.act(3, action)) == (409, "state_conflict", None)
    assert uploader.seal(b"{}", b"new").json()["number"] == 4


def test_a_version_being_validated_waits_for_its_verdict(
    port: Port, context: PlatformContext, uploader: Uploader
) -> None:
    uploader.seal(b"{}", b"weights")
    for response in (
        port.call("DELETE", f"{PIRATE}/versions/1"),
        port.call("DELETE", PIRATE),
        port.act(1, "retire"),
        port.act(1, "restore"),
    ):
        assert refusal(response) == (409, "state_conflict", None)
    assert port.act(1, "retry").json()["state"] == "validating"
    assert [kind for kind, _ in jobs(context)] == ["validate"]


def test_a_failure_of_ours_is_validated_again_on_request(
    port: Port, pirate: list[str], context: PlatformContext, harbour: Tenant
) -> None:
    with context.db.platform.unit_of_work() as work:
        a_version(work, harbour, name="pirate", number=4, state="failed_internal")
    again = port.act(4, "retry")
    assert (again.status_code, again.json()["state"]) == (202, "validating")
    assert jobs(context) == [("validate", 0.0)]
    assert port.act(4, "retry").json()["state"] == "validating"
    for number in (1, 2):
        assert refusal(port.act(number, "retry")) == (409, "state_conflict", None)


@pytest.mark.parametrize(
    "body", [{"reason": "x" * 501}, {"reason": 7}, {"force": "yes"}, {"force": 1}, {"when": "now"}]
)
def test_a_reason_that_is_none_is_refused_by_field(port: Port, pirate: list[str], body: dict[str, Any]) -> None:
    status, _, param = refusal(port.act(2, "retire", body))
    assert (status, param, port.state(2)) == (400, next(iter(body)), "ready")


def test_a_deleted_adapter_is_gone_and_its_name_is_free(
    port: Port, pirate: list[str], context: PlatformContext, uploader: Uploader, harbour: Tenant
) -> None:
    port.put_alias("best", 2)
    port.act(3, "retire")
    assert port.call("DELETE", PIRATE).status_code == 204
    for path in (
        PIRATE,
        f"{PIRATE}/versions",
        f"{PIRATE}/versions/1",
        f"{PIRATE}/aliases",
        f"{PIRATE}/aliases/live/history",
    ):
        assert refusal(port.call("GET", path)) == (404, "not_found", None)
    assert port.get("/adapters")["data"] == []
    assert refusal(port.call("DELETE", PIRATE)) == (404, "not_found", None)
    assert sorted(kind for kind, _ in jobs(context)) == ["purge", "retire", "retire", "retire"]
    with context.db.platform.read() as work:
        assert {row.state for row in work.scalars(select(AdapterVersion))} == {"retired"}
        ends = work.scalars(select(AliasChange).order_by(AliasChange.alias, AliasChange.revision)).all()
        assert [(line.alias, line.revision, len(line.targets)) for line in ends] == [
            ("best", 1, 1),
            ("best", 2, 0),
            ("live", 1, 1),
            ("live", 2, 0),
        ]
        assert {line.actor for line in ends if not line.targets} == {port.actor}
    new = uploader.seal(b"{}", b"weights").json()
    assert (new["number"], number_of(context, new["id"])) == (1, 1)
    with context.db.platform.read() as work:
        assert sorted(row.status for row in work.scalars(select(Adapter))) == ["active", "deleted"]
