"""Quarantine: an administrator, or damage, takes a version out at once; aliases go back to what was healthy."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.tables import Job
from lorikeet_platform.registry.versions.warming import take_out_damaged
from tests.support.platform_parts import Tenant, a_version
from tests.support.registry_port import Port, refusal
from tests.support.scripted_engine import ScriptedEngine

PIRATE = "/adapters/pirate"


def retirements(context: PlatformContext) -> int:
    with context.db.platform.read() as work:
        return len(work.scalars(select(Job).where(Job.kind == "retire")).all())


def test_a_quarantined_version_ends_at_once_and_its_aliases_go_back(
    operator: Port, pirate: list[str], context: PlatformContext, engine: ScriptedEngine, harbour: Tenant
) -> None:
    operator.put_alias("live", (1, 90), (2, 10))
    operator.put_alias("live", 2)
    operator.put_alias("fresh", 2)
    quarantined = operator.act(2, "quarantine", {"reason": "says rude things"})
    version = quarantined.json()
    assert (quarantined.status_code, version["state"], version["retire_reason"]) == (
        200,
        "quarantined",
        "says rude things",
    )
    assert (version["purge_after"], version["retired_at"] is not None) == (None, True)
    assert (operator.targets("live"), operator.targets("fresh")) == ({1: 100}, None)
    last = operator.get(f"{PIRATE}/aliases/live/history")["data"][0]
    assert (last["revision"], last["actor"]) == (4, "administrator")
    assert last["reason"] == "version 2 was quarantined: says rude things"
    assert operator.get(f"{PIRATE}/aliases/fresh/history")["data"][0]["targets"] == []
    assert engine.retired == [(harbour.id, pirate[2], True)]
    assert retirements(context) == 1
    assert operator.act(2, "quarantine").json() == version
    assert retirements(context) == 1


def test_without_a_healthy_past_the_largest_healthy_share_gets_everything(operator: Port, pirate: list[str]) -> None:
    operator.put_alias("fresh", (1, 20), (2, 50), (3, 30))
    operator.act(2, "quarantine")
    assert operator.targets("fresh") == {3: 100}
    operator.act(3, "quarantine")
    assert operator.targets("fresh") is None


def test_a_released_version_is_ready_and_aliases_stay_where_they_are(operator: Port, pirate: list[str]) -> None:
    operator.put_alias("live", 2)
    operator.act(2, "quarantine")
    assert refusal(operator.act(2, "restore")) == (409, "state_conflict", None)
    released = operator.act(2, "release").json()
    assert (released["state"], released["retired_at"], operator.targets()) == ("ready", None, {1: 100})
    assert operator.act(2, "release").json() == released
    operator.act(3, "retire")
    assert refusal(operator.act(3, "release")) == (409, "state_conflict", None)
    assert operator.act(3, "quarantine").json()["state"] == "quarantined"


@pytest.mark.parametrize("state", ["validating", "rejected", "failed_internal", "purged"])
def test_what_is_not_in_service_cannot_be_quarantined(
    operator: Port, pirate: list[str], context: PlatformContext, harbour: Tenant, state: str
) -> None:
    with context.db.platform.unit_of_work() as work:
        a_version(work, harbour, name="pirate", number=4, state=state)
    assert refusal(operator.act(4, "quarantine")) == (409, "state_conflict", None)


def test_a_tenant_can_neither_quarantine_nor_release(api: TestClient, harbour: Tenant, pirate: list[str]) -> None:
    for action in ("quarantine", "release"):
        response = api.post(f"/v1{PIRATE}/versions/2/{action}", json={}, headers=harbour.auth)
        assert refusal(response) == (404, "not_found", None)


def test_damage_takes_out_every_version_with_that_image_once_and_only_the_tenants(
    operator: Port, pirate: list[str], context: PlatformContext, harbour: Tenant, orchard: Tenant
) -> None:
    with context.db.platform.unit_of_work() as work:
        for tenant, name in ((harbour, "twin"), (orchard, "theirs")):
            a_version(work, tenant, name=name).digest = pirate[2]
    operator.put_alias("live", 2)
    for _ in range(3):
        take_out_damaged(context, harbour.id, pirate[2])
    assert (operator.state(2), operator.state(1, adapter="twin"), operator.targets()) == (
        "quarantined",
        "quarantined",
        {1: 100},
    )
    assert operator.targets(adapter="twin") is None
    assert operator.get(f"{PIRATE}/aliases/live/history")["data"][0]["actor"] == "system"
    assert retirements(context) == 2
    theirs = Port(operator.client, f"/admin/v1/tenants/{orchard.slug}", operator.auth, "administrator")
    assert theirs.state(1, adapter="theirs") == "ready"
