"""Single requests over HTTP: pages, what each record says, and whose."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from lorikeet_platform.context import PlatformContext
from lorikeet_platform.ids import new_id
from lorikeet_platform.web.pagination import Cursors
from tests.platform.usage.conftest import get
from tests.support.ledger import NOON, NOON_S, AsPayer, opened, use
from tests.support.platform_parts import BASE, Tenant, a_version


def test_records_come_newest_first_and_page_by_page(
    place: PlatformContext, tenant_port: TestClient, admin_port: TestClient, mine: Tenant, foreign: Tenant
) -> None:
    ids = [use(place.db, mine, at=NOON + number // 2) for number in range(7)]
    use(place.db, foreign)
    got, after = [], None
    while True:
        page = get(tenant_port, mine, "/v1/usage/records", limit=3, **({"after": after} if after else {})).json()
        got += [entry["request_id"] for entry in page["data"]]
        assert page["has_more"] == (page["next"] is not None)
        if not page["has_more"]:
            break
        after = page["next"]
    assert sorted(got) == sorted(ids)
    assert got == sorted(got, reverse=True)
    theirs = admin_port.get("/admin/v1/tenants/harbour/usage/records", params={"limit": 100}).json()
    assert [entry["request_id"] for entry in theirs["data"]] == got


def test_a_record_says_what_it_was_for_and_what_it_used(
    place: PlatformContext, tenant_port: TestClient, mine: Tenant
) -> None:
    with place.db.platform.unit_of_work() as work:
        version = a_version(work, mine, name="pirate")
    request_id = use(place.db, mine, version=version)
    running = opened(place.db, AsPayer(mine), at=NOON + 1, est=70)
    open_one, settled_one = get(tenant_port, mine, "/v1/usage/records").json()["data"]
    assert (open_one["request_id"], open_one["state"], open_one["reserved_tokens"]) == (running, "open", 70)
    assert settled_one == {
        "request_id": request_id,
        "key_id": mine.key_id,
        "key_name": "first",
        "route": "/v1/chat/completions",
        "model": "pirate:1",
        "base_model": BASE,
        "adapter_id": version.adapter_id,
        "version_id": version.id,
        "stream": False,
        "n": 1,
        "state": "settled",
        "outcome": "ok",
        "settled_by": "gateway",
        "reserved_tokens": 0,
        "prompt_tokens": 10,
        "cached_tokens": 4,
        "completion_tokens": 5,
        "admitted_at": NOON_S,
        "settled_at": NOON_S,
        "ttft_ms": None,
        "cost": None,
    }


@pytest.mark.parametrize("limit", [0, 101, "many"])
def test_a_page_has_1_to_100_entries(tenant_port: TestClient, mine: Tenant, limit: Any) -> None:
    response = get(tenant_port, mine, "/v1/usage/records", limit=limit)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "limit")


def test_n11_a_cursor_that_was_forged_or_is_another_tenants_is_refused(
    place: PlatformContext, tenant_port: TestClient, admin_port: TestClient, mine: Tenant, foreign: Tenant
) -> None:
    for number in range(3):
        use(place.db, foreign, at=NOON + number)
    theirs = get(tenant_port, foreign, "/v1/usage/records", limit=1).json()["next"]
    other_list = Cursors(place.pepper, mine.id, "audit_events").write([NOON, new_id("req")])
    for cursor in (theirs, theirs[:-2], "x", "", other_list):
        response = get(tenant_port, mine, "/v1/usage/records", after=cursor)
        assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_value"), cursor
        assert response.json()["error"]["param"] == "after"
    assert admin_port.get("/admin/v1/tenants/orchard/usage/records", params={"after": theirs}).status_code == 200
