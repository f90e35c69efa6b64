"""Plans and limits over HTTP: who sets what, what is shown with its origin, and that every change is heard and kept."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from lorikeet_platform.auth.notices import Notice
from lorikeet_platform.clock import unix_seconds
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.tables import AuditEvent, BudgetCounter
from lorikeet_platform.db.tables import Tenant as TenantRow
from lorikeet_platform.limits.effective import DIMENSIONS
from lorikeet_platform.limits.standard import STANDARD
from lorikeet_platform.usage.periods import month_start, next_month_start
from tests.support.platform_parts import FakeClock, Tenant, limit_key, limit_tenant

ADMIN = "/admin/v1"


@pytest.fixture
def heard(context: PlatformContext) -> list[Notice]:
    notices: list[Notice] = []
    context.notices.subscribe(notices.append)
    return notices


@pytest.fixture
def put(admin: TestClient, as_admin: dict[str, str]) -> Any:
    """Sets limits; returns status and body."""

    def send(path: str, limits: object, method: str = "PUT", **more: object) -> tuple[int, Any]:
        answer = admin.request(method, f"{ADMIN}{path}", json={"limits": limits, **more}, headers=as_admin)
        return answer.status_code, answer.json()

    return send


def events(context: PlatformContext, action: str) -> list[AuditEvent]:
    with context.db.platform.read() as work:
        return list(work.scalars(select(AuditEvent).where(AuditEvent.action == action)))


def test_a_tenants_limits_are_the_plans_until_it_has_its_own(
    admin: TestClient,
    as_admin: dict[str, str],
    harbour: Tenant,
    put: Any,
    heard: list[Notice],
    context: PlatformContext,
) -> None:
    shown = admin.get(f"{ADMIN}/tenants/harbour/limits", headers=as_admin).json()["limits"]
    assert set(shown) == set(DIMENSIONS)
    plan = {"value": 6000, "burst": 1000}
    assert shown["rpm"] == {**plan, "origin": "plan", "own": None, "plan": plan}
    status, changed = put("/tenants/harbour/limits", {"rpm": {"value": 600, "burst": 50}, "keys": {"value": 3}})
    assert status == 200
    own = {"value": 600, "burst": 50}
    assert changed["limits"]["rpm"] == {**own, "origin": "tenant", "own": own, "plan": plan}
    assert changed["limits"]["keys"]["value"] == 3
    assert changed["limits"]["adapters"]["origin"] == "plan"
    status, changed = put("/tenants/harbour/limits", {"rpm": None})
    assert changed["limits"]["rpm"] == {**plan, "origin": "plan", "own": None, "plan": plan}
    assert changed["limits"]["keys"]["value"] == 3  # what was not named stays
    assert [(notice.tenant_id, notice.key_id, notice.reason) for notice in heard] == [(harbour.id, None, "changed")] * 2
    [first, second] = events(context, "tenant.limits")
    assert (first.tenant_id, first.actor, first.subject, first.details) == (
        harbour.id,
        "administrator",
        "harbour",
        {"rpm": [600, 50], "keys": [3, None]},
    )
    assert second.details == {"rpm": None}


def test_more_than_the_plan_gives_is_kept_and_counts_when_the_plan_grows(harbour: Tenant, put: Any) -> None:
    _, changed = put(f"/tenants/{harbour.slug}/limits", {"keys": {"value": 500}})
    assert (changed["limits"]["keys"]["value"], changed["limits"]["keys"]["origin"]) == (100, "plan")
    assert changed["limits"]["keys"]["own"]["value"] == 500
    put("/plans/standard", {"keys": {"value": 1000}})
    _, changed = put(f"/tenants/{harbour.slug}/limits", {})
    assert (changed["limits"]["keys"]["value"], changed["limits"]["keys"]["origin"]) == (500, "tenant")


@pytest.mark.parametrize(
    ("limits", "param"),
    [
        ({"speed": {"value": 1}}, "limits.speed"),
        ({"rpm": {"value": 10, "burst": 11}}, "limits.rpm.burst"),
        ({"keys": {"value": 10, "burst": 1}}, "limits.keys.burst"),
        ({"rpm": {"value": -1}}, "limits.rpm.value"),
        ({"rpm": {"value": True}}, "limits.rpm.value"),
        ({"rpm": {"value": 1.5}}, "limits.rpm.value"),
        ({"rpm": {"value": 10**15 + 1}}, "limits.rpm.value"),
        ({"rpm": {"value": 1, "per": "hour"}}, "limits.rpm.per"),
        ({"rpm": {}}, "limits.rpm.value"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused_by_name(harbour: Tenant, put: Any, limits: object, param: str) -> None:
    for path in (f"/tenants/{harbour.slug}/limits", "/plans/standard"):
        status, body = put(path, limits)
        assert (status, body["error"]["param"]) == (400, param)


def test_a_plan_is_made_like_standard_but_for_what_is_said_and_its_tenants_hear_of_its_changes(
    admin: TestClient,
    as_admin: dict[str, str],
    harbour: Tenant,
    orchard: Tenant,
    put: Any,
    heard: list[Notice],
    context: PlatformContext,
) -> None:
    status, made = put("/plans", {"rpm": {"value": 60, "burst": 10}}, "POST", id="small", display_name="Small")
    assert (status, made["id"], made["display_name"], made["tenants"]) == (201, "small", "Small", 0)
    assert made["limits"]["rpm"] == {"value": 60, "burst": 10}
    assert made["limits"]["max_n"] == {"value": STANDARD["max_n"][0], "burst": None}
    with context.db.platform.unit_of_work() as work:
        work.get_one(TenantRow, harbour.id).plan_id = "small"
    status, changed = put("/plans/small", {"max_n": {"value": 2}})
    assert (status, changed["tenants"], changed["limits"]["max_n"]["value"]) == (200, 1, 2)
    assert [(notice.tenant_id, notice.reason) for notice in heard] == [(harbour.id, "changed")]
    shown = admin.get(f"{ADMIN}/tenants/harbour/limits", headers=as_admin).json()["limits"]
    assert (shown["max_n"]["value"], shown["rpm"]["value"]) == (2, 60)
    listed = admin.get(f"{ADMIN}/plans", headers=as_admin).json()["data"]
    assert [(plan["id"], plan["tenants"]) for plan in listed] == [("small", 1), ("standard", 1)]
    assert admin.get(f"{ADMIN}/plans/small", headers=as_admin).json() == changed
    assert [event.subject for event in events(context, "plan.create") + events(context, "plan.limits")] == ["small"] * 2


def test_what_changes_nothing_is_neither_recorded_nor_announced(
    harbour: Tenant, put: Any, heard: list[Notice], context: PlatformContext
) -> None:
    paths = {
        "tenant.limits": "/tenants/harbour/limits",
        "key.limits": f"/tenants/harbour/keys/{harbour.key_id}/limits",
        "plan.limits": "/plans/standard",
    }
    for action, path in paths.items():
        assert put(path, {"max_n": {"value": 3}})[0] == 200
        assert put(path, {})[0] == 200
        assert put(path, {"max_n": {"value": 3}})[0] == 200
        if action != "plan.limits":
            assert put(path, {"rpm": None})[0] == 200
        assert put(path, {"max_n": {"value": 3}, "rpm": {"value": 70, "burst": 7}})[0] == 200
        assert [event.details for event in events(context, action)] == [{"max_n": [3, None]}, {"rpm": [70, 7]}]
    assert len(heard) == 6


@pytest.mark.parametrize("name", ["", " ", "a\nb", "\x1b]0;x\x07", "\u202eabc", "a\u200bb", "\u2028"])
def test_a_plan_has_a_name_that_can_be_read(put: Any, name: str) -> None:
    status, body = put("/plans", {}, "POST", id="small", display_name=name)
    assert (status, body["error"]["param"]) == (400, "display_name")


def test_a_plan_keeps_a_figure_for_everything(put: Any) -> None:
    status, body = put("/plans/standard", {"rpm": None})
    assert (status, body["error"]["param"]) == (400, "limits.rpm")
    status, body = put("/plans", {"rpm": None}, "POST", id="none")
    assert (status, body["error"]["param"]) == (400, "limits.rpm")


def test_plans_have_names_of_their_own(put: Any) -> None:
    assert put("/plans", {}, "POST", id="standard")[1]["error"]["code"] == "name_conflict"
    assert put("/plans", {}, "POST", id="Not So")[0] == 400
    assert put("/plans/nothing", {})[0] == 404
    assert put("/tenants/nobody/limits", {})[0] == 404


def test_two_who_set_the_same_limit_at_once_both_succeed(harbour: Tenant, put: Any) -> None:
    with ThreadPoolExecutor(4) as several:
        answers = list(
            several.map(lambda value: put(f"/tenants/{harbour.slug}/limits", {"rpm": {"value": value}}), range(1, 9))
        )
    assert [status for status, _ in answers] == [200] * 8


def test_a_key_sees_its_limits_their_origins_and_the_months_use(
    api: TestClient, context: PlatformContext, harbour: Tenant, clock: FakeClock
) -> None:
    limit_tenant(context.db, harbour.id, tpm=(9000, 900), monthly_tokens=10_000)
    limit_key(context.db, harbour.id, harbour.key_id, rpm=(60, 6), monthly_tokens=4_000)
    now = clock()
    with context.db.platform.unit_of_work() as work:
        for subject, settled in ((harbour.id, 700), (harbour.key_id, 300)):
            for period, factor in ((month_start(now), 1), (month_start(now) - 1, 9)):
                work.add(
                    BudgetCounter(
                        tenant_id=harbour.id,
                        subject_id=subject,
                        period_start=month_start(period),
                        reserved=50,
                        settled=settled * factor,
                    )
                )
    shown = api.get("/v1/limits", headers=harbour.auth).json()
    assert {name: shown["limits"][name]["origin"] for name in ("rpm", "tpm", "monthly_tokens", "keys")} == {
        "rpm": "key",
        "tpm": "tenant",
        "monthly_tokens": "key",
        "keys": "plan",
    }
    assert shown["limits"]["rpm"]["own"] == {"value": 60, "burst": 6}
    assert shown["limits"]["tpm"]["own"] is None
    assert shown["month"] == {
        "starts_at": unix_seconds(month_start(now)),
        "resets_at": unix_seconds(next_month_start(now)),
        "tenant": {"limit": 10_000, "settled": 700, "reserved": 50},
        "key": {"limit": 4_000, "settled": 300, "reserved": 50},
    }


def test_a_new_key_has_used_nothing(api: TestClient, harbour: Tenant) -> None:
    month = api.get("/v1/limits", headers=harbour.auth).json()["month"]
    assert (month["tenant"]["settled"], month["key"]["settled"]) == (0, 0)
    assert month["tenant"]["limit"] == month["key"]["limit"] == STANDARD["monthly_tokens"][0]
