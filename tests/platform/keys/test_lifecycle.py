"""A key from its creation to its end, on both ports: changes, rotation, revocation, expiry, leaks."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from lorikeet_platform.auth.key_format import checksum, is_well_formed, new_key
from lorikeet_platform.auth.notices import Notice
from lorikeet_platform.clock import HOUR
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.tables import ApiKey, AuditEvent, TenantLimit
from tests.support.keys import a_key
from tests.support.platform_parts import FakeClock, Tenant, a_version
from tests.support.registry_port import Port, refusal


def make(port: Port, **body: Any) -> dict[str, Any]:
    response = port.call("POST", "/keys", {"name": "made", **body})
    assert response.status_code == 201, response.text
    made: dict[str, Any] = response.json()
    return made


def works(api: TestClient, secret: str) -> bool:
    status = api.get("/v1/models", headers={"authorization": f"Bearer {secret}"}).status_code
    assert status in (200, 401)
    return status == 200


def audited(context: PlatformContext, action: str) -> list[AuditEvent]:
    with context.db.platform.read() as work:
        return list(work.scalars(select(AuditEvent).where(AuditEvent.action == action)))


def test_a_key_is_shown_with_all_that_was_said_of_it(
    port: Port, api: TestClient, context: PlatformContext, harbour: Tenant, clock: FakeClock
) -> None:
    with context.db.platform.unit_of_work() as work:
        a_version(work, harbour, name="pirate")
    ends_at = clock() // 1_000_000 + 60
    wanted = {
        "scopes": ["models:read", "inference"],
        "allowed_adapters": ["pirate"],
        "ip_allowlist": ["192.0.2.7", "2001:db8::/32"],
        "expires_at": ends_at,
    }
    made = make(port, **wanted, limits={"rpm": {"value": 60, "burst": 5}})
    secret = made.pop("secret")
    assert is_well_formed(secret)
    assert made == port.get(f"/keys/{made['id']}")
    assert made in port.get("/keys")["data"]
    assert secret not in port.call("GET", "/keys").text
    assert {name: made[name] for name in wanted} == {
        **wanted,
        "scopes": ["inference", "models:read"],
        "ip_allowlist": ["192.0.2.7/32", "2001:db8::/32"],
    }
    assert (made["hint"], made["public_id"], made["status"]) == (secret[44:48], secret[3:15], "active")
    assert (made["subject_id"], made["created_by"]) == (made["id"], port.actor)
    [event] = [event for event in audited(context, "key.create") if event.subject == made["id"]]
    assert (event.actor, event.tenant_id) == (port.actor, harbour.id)
    assert secret[16:48] not in str(event.details)


def test_another_tenants_key_is_like_none(port: Port, orchard: Tenant) -> None:
    calls: list[tuple[str, str, dict[str, object] | None]] = [
        ("GET", "", None),
        ("PATCH", "", {"name": "x"}),
        ("POST", "/rotate", {}),
        ("POST", "/revoke", {}),
        ("GET", "/limits", None),
        ("PUT", "/limits", {"limits": {}}),
    ]
    for method, action, body in calls:
        foreign = port.call(method, f"/keys/{orchard.key_id}{action}", body)
        missing = port.call(method, f"/keys/{'key_' + '0' * 26}{action}", body)
        assert refusal(foreign) == refusal(missing) == (404, "not_found", "id")


def test_a_key_knows_itself_whatever_its_scopes(api: TestClient, context: PlatformContext, harbour: Tenant) -> None:
    key = a_key(context, harbour, "usage:read")
    own = api.get("/v1/keys/self", headers=key.auth).json()
    assert (own["id"], own["scopes"]) == (key.key_id, ["usage:read"])
    assert "secret" not in own
    assert api.get(f"/v1/keys/{key.key_id}", headers=key.auth).status_code == 403


def test_a_key_is_changed_where_the_body_says_so(port: Port, api: TestClient, context: PlatformContext) -> None:
    made = make(port, scopes=["inference", "usage:read"])
    secret = made.pop("secret")
    assert works(api, secret)
    changed = port.call("PATCH", f"/keys/{made['id']}", {"name": "renamed", "scopes": ["usage:read"]}).json()
    assert changed == {**made, "name": "renamed", "scopes": ["usage:read"]}
    refused = api.get("/v1/models", headers={"authorization": f"Bearer {secret}"})
    assert refusal(refused)[:2] == (403, "insufficient_scope")
    heard: list[Notice] = []
    context.notices.subscribe(heard.append)
    for nothing in ({}, {"name": "renamed"}, {"scopes": ["usage:read"], "expires_at": None}):
        assert port.call("PATCH", f"/keys/{made['id']}", nothing).json() == changed
    assert heard == []
    assert [event.details for event in audited(context, "key.update")] == [
        {"name": "renamed", "scopes": ["usage:read"]}
    ]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"name": None}, "invalid_value"),
        ({"name": ""}, "invalid_value"),
        ({"scopes": None}, "invalid_value"),
        ({"expires_at": 1}, "invalid_value"),
        ({"expires_at": "tomorrow"}, "invalid_value"),
        ({"expires_at": 2**62}, "invalid_value"),
        ({"status": "active"}, "unknown_parameter"),
        ({"limits": {}}, "unknown_parameter"),
    ],
)
def test_a_change_that_cannot_be_is_refused_by_its_name(port: Port, body: dict[str, object], code: str) -> None:
    made = make(port)
    assert refusal(port.call("PATCH", f"/keys/{made['id']}", body)) == (400, code, next(iter(body)))


@pytest.mark.parametrize("name", [" ", "a\nb", "\x1b]0;x\x07", "\u202eabc", "a\u200bb", "\u2028"])
def test_a_key_has_a_name_that_can_be_read(port: Port, name: str) -> None:
    assert refusal(port.call("POST", "/keys", {"name": name})) == (400, "invalid_value", "name")
    made = make(port, name="Produktion – 1 (日本)")
    assert refusal(port.call("PATCH", f"/keys/{made['id']}", {"name": name})) == (400, "invalid_value", "name")


def test_a_name_is_taken_while_its_key_is_in_use(port: Port) -> None:
    make(port)
    other = make(port, name="other")
    assert refusal(port.call("POST", "/keys", {"name": "made"})) == (409, "name_conflict", "name")
    assert refusal(port.call("PATCH", f"/keys/{other['id']}", {"name": "made"})) == (409, "name_conflict", "name")


def test_rotation_keeps_the_lineage_and_both_keys_work_until_the_overlap_ends(
    port: Port, api: TestClient, clock: FakeClock, context: PlatformContext
) -> None:
    old = make(port, scopes=["inference"], limits={"rpm": {"value": 60}})
    new = port.call("POST", f"/keys/{old['id']}/rotate", {"overlap_hours": 1}).json()
    assert {name: new[name] for name in ("name", "scopes", "subject_id", "rotated_from")} == {
        "name": "made",
        "scopes": ["inference"],
        "subject_id": old["id"],
        "rotated_from": old["id"],
    }
    assert port.get(f"/keys/{new['id']}/limits")["limits"]["rpm"]["value"] == 60
    assert works(api, old["secret"])
    assert works(api, new["secret"])
    replaced = port.get(f"/keys/{old['id']}")
    assert (replaced["replaced_at"], replaced["expires_at"]) == (clock() // 1_000_000, (clock() + HOUR) // 1_000_000)
    clock.advance(3600)
    assert not works(api, old["secret"])
    assert works(api, new["secret"])
    third = port.call("POST", f"/keys/{new['id']}/rotate", {"overlap_hours": 0}).json()
    assert (third["subject_id"], third["rotated_from"]) == (old["id"], new["id"])
    assert not works(api, new["secret"])
    assert {event.details["rotated_from"] for event in audited(context, "key.rotate")} == {old["id"], new["id"]}


def test_a_limit_of_a_lineage_holds_for_each_of_its_keys(port: Port, context: PlatformContext) -> None:
    old = make(port)
    new = port.call("POST", f"/keys/{old['id']}/rotate", {}).json()
    port.call("PUT", f"/keys/{new['id']}/limits", {"limits": {"max_n": {"value": 1}}})
    for key in (old, new):
        assert port.get(f"/keys/{key['id']}/limits")["limits"]["max_n"]["origin"] == "key"
    assert [event.details for event in audited(context, "key.limits")] == [{"max_n": [1, None]}]


def test_a_rotated_key_is_neither_rotated_nor_widened_again_but_revoked(port: Port, api: TestClient) -> None:
    old = make(port)
    new = port.call("POST", f"/keys/{old['id']}/rotate", {}).json()
    assert refusal(port.call("POST", f"/keys/{old['id']}/rotate", {})) == (409, "state_conflict", "id")
    for wider in ({"expires_at": None}, {"name": "other"}, {"scopes": ["keys:read"]}):
        assert refusal(port.call("PATCH", f"/keys/{old['id']}", wider)) == (409, "state_conflict", "id")
    assert works(api, old["secret"])
    assert port.call("POST", f"/keys/{old['id']}/revoke", {}).json()["status"] == "revoked"
    assert not works(api, old["secret"])
    assert works(api, new["secret"])


def test_a_rotated_key_can_be_narrowed_while_it_works(
    port: Port, api: TestClient, context: PlatformContext, clock: FakeClock
) -> None:
    old = make(port, scopes=["models:read", "inference"])
    port.call("POST", f"/keys/{old['id']}/rotate", {"overlap_hours": 168})
    sooner = clock() // 1_000_000 + 60
    narrowed = {"scopes": ["usage:read"], "ip_allowlist": ["192.0.2.0/24"], "expires_at": sooner}
    assert refusal(port.call("PATCH", f"/keys/{old['id']}", narrowed)) == (409, "state_conflict", "id")
    narrowed["scopes"] = ["inference"]
    shown = port.call("PATCH", f"/keys/{old['id']}", narrowed).json()
    assert {name: shown[name] for name in narrowed} == narrowed
    refused = api.get("/v1/models", headers={"authorization": f"Bearer {old['secret']}"})
    assert refusal(refused)[:2] == (403, "ip_not_allowed")
    clock.advance(61)
    assert refusal(port.call("PATCH", f"/keys/{old['id']}", {}))[:2] == (409, "state_conflict")


def test_a_lineage_has_two_keys_at_most_that_work(port: Port, api: TestClient, clock: FakeClock) -> None:
    key = make(port)
    secrets = [key["secret"]]
    for _ in range(4):
        key = port.call("POST", f"/keys/{key['id']}/rotate", {"overlap_hours": 168}).json()
        secrets.append(key["secret"])
        assert [works(api, secret) for secret in secrets] == [False] * (len(secrets) - 2) + [True, True]
    ended = port.get(f"/keys/{key['subject_id']}")
    assert (ended["status"], ended["expires_at"]) == ("active", clock() // 1_000_000)


@pytest.mark.parametrize("leaks", [False, True])
def test_a_revoked_key_takes_those_along_that_it_was_rotated_from(
    port: Port, api: TestClient, admin: TestClient, as_admin: dict[str, str], context: PlatformContext, leaks: bool
) -> None:
    old = make(port)
    new = port.call("POST", f"/keys/{old['id']}/rotate", {"overlap_hours": 168}).json()
    assert works(api, old["secret"])
    if leaks:
        admin.post("/admin/v1/leaked_keys", json={"key": new["secret"]}, headers=as_admin)
    else:
        port.call("POST", f"/keys/{new['id']}/revoke", {"reason": "left"})
    assert [works(api, key["secret"]) for key in (old, new)] == [False, False]
    before = port.get(f"/keys/{old['id']}")
    assert (before["status"], before["revoke_reason"]) == ("revoked", "leaked" if leaks else "left")
    events = audited(context, "key.leaked" if leaks else "key.revoke")
    assert {event.subject: event.details.get("with") for event in events} == {new["id"]: None, old["id"]: new["id"]}


@pytest.mark.parametrize("hours", [-1, 169, 1.5, "24", True, None])
def test_an_overlap_is_whole_hours_of_a_week(port: Port, hours: object) -> None:
    made = make(port)
    refused = port.call("POST", f"/keys/{made['id']}/rotate", {"overlap_hours": hours})
    assert refusal(refused) == (400, "invalid_value", "overlap_hours")


def test_a_revoked_key_stops_at_once_and_keeps_its_reason(
    port: Port, api: TestClient, context: PlatformContext
) -> None:
    made = make(port)
    assert works(api, made["secret"])
    revoked = port.call("POST", f"/keys/{made['id']}/revoke", {"reason": "left the company"}).json()
    assert (revoked["status"], revoked["revoke_reason"]) == ("revoked", "left the company")
    assert not works(api, made["secret"])
    assert port.call("POST", f"/keys/{made['id']}/revoke", {}).json() == revoked
    assert [event.details["reason"] for event in audited(context, "key.revoke")] == ["left the company"]
    assert refusal(port.call("POST", f"/keys/{made['id']}/rotate", {}))[:2] == (409, "state_conflict")
    assert refusal(port.call("PATCH", f"/keys/{made['id']}", {}))[:2] == (409, "state_conflict")
    make(port)  # its name is free


def test_an_expired_key_stops_at_its_second(port: Port, api: TestClient, clock: FakeClock) -> None:
    clock.now -= clock.now % 1_000_000
    made = make(port, expires_at=clock() // 1_000_000 + 2)
    clock.advance(1.9)
    assert works(api, made["secret"])
    clock.advance(0.1)
    assert not works(api, made["secret"])
    assert refusal(port.call("POST", f"/keys/{made['id']}/rotate", {}))[:2] == (409, "state_conflict")


def test_as_many_keys_as_the_tenant_may_have(
    port: Port, context: PlatformContext, harbour: Tenant, clock: FakeClock
) -> None:
    in_use = len(port.get("/keys")["data"])
    with context.db.platform.unit_of_work() as work:
        work.add(
            TenantLimit(
                tenant_id=harbour.id, dimension="keys", value=in_use + 2, updated_by="administrator", updated_at=1
            )
        )
    first = make(port, name="first of two")
    make(port, name="brief", expires_at=clock() // 1_000_000 + 60)
    refused = port.call("POST", "/keys", {"name": "one too many"})
    assert refusal(refused) == (403, "key_quota_exceeded", None)
    # A successor takes its key's place, an expired or revoked key none.
    assert port.call("POST", f"/keys/{first['id']}/rotate", {}).status_code == 201
    assert port.call("POST", "/keys", {"name": "one too many"}).status_code == 403
    clock.advance(60)
    make(port, name="after it expired")


def test_a_leaked_key_is_revoked_by_its_text_whosever_it_is(
    admin: TestClient, as_admin: dict[str, str], api: TestClient, harbour: Tenant, context: PlatformContext
) -> None:
    def report(text: str) -> Any:
        return admin.post("/admin/v1/leaked_keys", json={"key": text}, headers=as_admin)

    unknown = new_key().text
    assert refusal(report(unknown)) == (404, "not_found", "key")
    assert refusal(report(harbour.secret[:15] + unknown[15:-6])) == (400, "invalid_value", "key")
    for text in ("", "lk_", harbour.secret[:-1], harbour.secret + "x", "x" * 300):
        refused = report(text)
        assert refusal(refused) == (400, "invalid_value", "key")
        assert not text or text not in refused.text
    assert works(api, harbour.secret)
    revoked = report(harbour.secret)
    assert (revoked.json()["id"], revoked.json()["status"]) == (harbour.key_id, "revoked")
    assert harbour.secret not in revoked.text
    assert not works(api, harbour.secret)
    [event] = audited(context, "key.leaked")
    assert (event.tenant_id, event.subject) == (harbour.id, harbour.key_id)
    assert report(harbour.secret).json() == revoked.json()


def test_the_leak_report_is_on_the_administration_port_alone(api: TestClient, harbour: Tenant) -> None:
    for path in ("/admin/v1/leaked_keys", "/v1/leaked_keys"):
        assert api.post(path, json={"key": harbour.secret}, headers=harbour.auth).status_code == 404


def test_a_wrong_secret_behind_a_known_id_is_not_a_leak(
    admin: TestClient, as_admin: dict[str, str], api: TestClient, harbour: Tenant, context: PlatformContext
) -> None:
    body = harbour.secret[:16] + "0" * 32
    refused = admin.post("/admin/v1/leaked_keys", json={"key": body + checksum(body)}, headers=as_admin)
    assert refusal(refused) == (404, "not_found", "key")
    with context.db.platform.read() as work:
        assert work.get_one(ApiKey, (harbour.id, harbour.key_id)).status == "active"
