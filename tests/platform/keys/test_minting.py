"""Who may make a key be what: nobody gives more than they have (R-13, N-5, N-7)."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient

from lorikeet_platform.auth.scopes import DEFAULT_SCOPES, SCOPES, Scope
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.tables import ApiKey, TenantLimit
from tests.support.keys import a_key, keys_may_make_keys
from tests.support.platform_parts import FakeClock, Tenant, a_version
from tests.support.registry_port import Port, refusal


def mint(port: Port, **body: Any) -> httpx2.Response:
    return port.call("POST", "/keys", {"name": "made", **body})


def narrow(context: PlatformContext, api: TestClient, tenant: Tenant, **wanted: Any) -> Port:
    """The tenant's keys, by one that is limited in some way."""
    keys_may_make_keys(context, tenant)
    scopes: tuple[Scope, ...] = wanted.pop("scopes", SCOPES)
    key = a_key(context, tenant, *scopes, name="narrow", **wanted)
    return Port(api, "/v1", key.auth, key.key_id)


def test_n7_a_key_without_keys_write_mints_nothing(api: TestClient, context: PlatformContext, harbour: Tenant) -> None:
    keys_may_make_keys(context, harbour)
    key = a_key(context, harbour, "adapters:write", "keys:read")
    port = Port(api, "/v1", key.auth, key.key_id)
    for scopes in (["keys:write"], ["adapters:write"], ["*"]):
        assert refusal(mint(port, scopes=scopes))[:2] == (403, "insufficient_scope")


@pytest.mark.parametrize("scope", ["*", "/*", "keys:*", "admin", "INFERENCE", " inference", "", None, 1])
def test_n7_a_scope_that_does_not_exist_is_no_scope(port: Port, scope: object) -> None:
    assert refusal(mint(port, scopes=[scope])) == (400, "invalid_value", "scopes.0")


def test_n7_a_key_mints_no_scope_that_it_lacks(api: TestClient, context: PlatformContext, harbour: Tenant) -> None:
    port = narrow(context, api, harbour, scopes=("keys:write", "inference"))
    assert refusal(mint(port, scopes=["inference", "adapters:write"])) == (403, "insufficient_scope", "scopes")
    assert mint(port, scopes=["inference"]).json()["scopes"] == ["inference"]


def test_n7_a_key_mints_no_higher_limits_than_its_own(
    api: TestClient, context: PlatformContext, harbour: Tenant
) -> None:
    port = narrow(context, api, harbour, limits={"max_n": (2, None)})
    assert refusal(mint(port, limits={"max_n": {"value": 3}})) == (403, "insufficient_scope", "limits.max_n")
    for limits in ({"rpm": {"value": 6001}}, {"rpm": {"value": 6000}}, {"rpm": {"value": 6000, "burst": 1001}}):
        # A minute's worth at once is more than the plan's burst.
        assert refusal(mint(port, limits=limits)) == (403, "insufficient_scope", "limits.rpm")
    assert refusal(mint(port, limits={"tpm": {"value": 4_000_001}})) == (403, "insufficient_scope", "limits.tpm")
    assert mint(port, limits={"max_n": {"value": 2}, "rpm": {"value": 60, "burst": 10}}).status_code == 201


@pytest.mark.parametrize("dimension", ["rpm", "tpm", "concurrent", "queue_depth", "monthly_tokens"])
def test_a_key_whose_own_requests_are_counted_gets_no_second_count(
    api: TestClient, context: PlatformContext, harbour: Tenant, dimension: str
) -> None:
    port = narrow(context, api, harbour, limits={dimension: (60, None)})
    other = a_key(context, harbour, "inference", name="other", limits={dimension: (60, None)})
    assert refusal(mint(port)) == (403, "insufficient_scope", None)
    assert refusal(port.call("POST", f"/keys/{other.key_id}/rotate", {})) == (403, "insufficient_scope", None)
    # Its own successor counts on.
    assert port.call("POST", f"/keys/{port.actor}/rotate", {}).status_code == 201


def test_a_burst_is_a_part_of_what_a_key_reaches(api: TestClient, context: PlatformContext, harbour: Tenant) -> None:
    port = narrow(context, api, harbour, limits={"rpm": (60, 5)})
    wide = a_key(context, harbour, "inference", name="wide", limits={"rpm": (60, 50)})
    refused = port.call("POST", f"/keys/{wide.key_id}/rotate", {})
    assert refusal(refused) == (403, "insufficient_scope", "limits.rpm")


def test_a_key_ends_and_limits_no_broader_key_than_itself(
    api: TestClient, context: PlatformContext, harbour: Tenant
) -> None:
    port = narrow(context, api, harbour, scopes=("keys:write", "inference"))
    equal = a_key(context, harbour, "inference", name="equal")
    calls: list[tuple[str, str, dict[str, object]]] = [
        ("POST", "/revoke", {}),
        ("PUT", "/limits", {"limits": {"rpm": {"value": 0}}}),
        ("PATCH", "", {"scopes": ["inference"]}),
    ]
    for method, action, body in reversed(calls):
        refused = port.call(method, f"/keys/{harbour.key_id}{action}", body)
        assert refusal(refused) == (403, "insufficient_scope", "scopes")
        assert port.call(method, f"/keys/{equal.key_id}{action}", body).status_code == 200
    assert port.call("POST", f"/keys/{port.actor}/revoke", {}).status_code == 200  # its own end it may bring about


def test_a_tenants_limit_bounds_what_its_keys_may_give(maker: Port, context: PlatformContext, harbour: Tenant) -> None:
    with context.db.platform.unit_of_work() as work:
        work.add(
            TenantLimit(tenant_id=harbour.id, dimension="max_n", value=2, updated_by="administrator", updated_at=1)
        )
    assert refusal(mint(maker, limits={"max_n": {"value": 3}})) == (403, "insufficient_scope", "limits.max_n")


@pytest.mark.parametrize(
    ("limits", "param"),
    [
        ({"adapters": {"value": 1}}, "limits.adapters"),
        ({"rps": {"value": 1}}, "limits.rps"),
        ({"rpm": {"value": 10, "burst": 11}}, "limits.rpm.burst"),
        ({"max_n": {"value": 1, "burst": 1}}, "limits.max_n.burst"),
        ({"rpm": {"value": -1}}, "limits.rpm.value"),
        ({"rpm": {"value": 2**63}}, "limits.rpm.value"),
        ({"rpm": {"value": 1.5}}, "limits.rpm.value"),
        ({"rpm": {"value": True}}, "limits.rpm.value"),
        ({"rpm": {}}, "limits.rpm.value"),
    ],
)
def test_a_limit_of_a_key_is_one_that_keys_can_have(port: Port, limits: object, param: str) -> None:
    status, code, found = refusal(mint(port, limits=limits))
    assert (status, found) == (400, param)
    assert code in ("invalid_value", "missing_parameter")


def test_keys_write_is_given_only_where_the_tenant_lets_keys_make_keys(
    owner: Port, context: PlatformContext, harbour: Tenant
) -> None:
    assert refusal(mint(owner, scopes=["keys:write"])) == (403, "insufficient_scope", "scopes")
    keys_may_make_keys(context, harbour)
    assert mint(owner, scopes=["keys:write"]).status_code == 201


def test_keys_write_has_no_effect_once_the_tenant_takes_it_back(
    maker: Port, admin: TestClient, as_admin: dict[str, str]
) -> None:
    assert mint(maker).status_code == 201
    off = admin.patch("/admin/v1/tenants/harbour", json={"keys_make_keys": False}, headers=as_admin)
    assert off.json()["keys_make_keys"] is False
    assert refusal(mint(maker, name="another"))[:2] == (403, "insufficient_scope")


def test_what_is_left_unsaid_is_everything_but_keys_for_an_administrator(owner: Port) -> None:
    made = mint(owner).json()
    assert made["scopes"] == list(DEFAULT_SCOPES)
    assert [made[name] for name in ("allowed_adapters", "ip_allowlist", "expires_at")] == [None, None, None]


def test_what_is_left_unsaid_is_as_the_makers(
    api: TestClient, context: PlatformContext, harbour: Tenant, clock: FakeClock
) -> None:
    with context.db.platform.unit_of_work() as work:
        a_version(work, harbour, name="pirate")
    ends_at = clock() + 3_600_000_000
    port = narrow(
        context,
        api,
        harbour,
        scopes=("keys:write", "keys:read", "inference"),
        allowed_adapters=["pirate"],
        expires_at=ends_at,
        limits={"max_n": (2, None)},
    )
    made = mint(port).json()
    assert made["scopes"] == ["inference"]
    assert made["allowed_adapters"] == ["pirate"]
    assert made["expires_at"] == ends_at // 1_000_000
    most = port.get(f"/keys/{made['id']}/limits")["limits"]["max_n"]
    assert (most["value"], most["origin"]) == (2, "key")


def test_a_key_gives_no_more_adapters_networks_or_time_than_its_own(
    api: TestClient, context: PlatformContext, harbour: Tenant, clock: FakeClock
) -> None:
    with context.db.platform.unit_of_work() as work:
        a_version(work, harbour, name="pirate")
        a_version(work, harbour, name="haiku")
    ends_at = clock() + 3_600_000_000
    cases: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({"allowed_adapters": ["pirate"]}, {"allowed_adapters": ["pirate", "haiku"]}, "allowed_adapters"),
        ({"allowed_adapters": ["pirate"]}, {"allowed_adapters": None}, "allowed_adapters"),
        ({"expires_at": ends_at}, {"expires_at": ends_at // 1_000_000 + 1}, "expires_at"),
        ({"expires_at": ends_at}, {"expires_at": None}, "expires_at"),
    ]
    for wanted, given, param in cases:
        port = narrow(context, api, harbour, **wanted)
        assert refusal(mint(port, **given)) == (403, "insufficient_scope", param)
        with context.db.platform.unit_of_work() as work:
            work.get_one(ApiKey, (harbour.id, port.actor)).name += port.actor  # the next one takes its name


def test_a_key_gives_no_more_networks_than_its_own(context: PlatformContext, harbour: Tenant, api: TestClient) -> None:
    keys_may_make_keys(context, harbour)
    key = a_key(context, harbour, *SCOPES, ip_allowlist=["10.0.0.0/8", "2001:db8::/32"])
    with TestClient(api.app, client=("10.1.2.3", 1), raise_server_exceptions=False) as client:
        port = Port(client, "/v1", key.auth, key.key_id)
        for networks in (["10.0.0.0/7"], ["192.0.2.1"], ["2001:db9::1"], ["10.0.0.1", "11.0.0.1"], None):
            assert refusal(mint(port, ip_allowlist=networks)) == (403, "insufficient_scope", "ip_allowlist")
        made = mint(port, ip_allowlist=["10.9.0.0/16", "::ffff:10.8.0.1"])
        assert made.json()["ip_allowlist"] == ["10.9.0.0/16", "10.8.0.1/32"]
        assert mint(port, name="unsaid").json()["ip_allowlist"] == ["10.0.0.0/8", "2001:db8::/32"]


@pytest.mark.parametrize("network", ["", "10.0.0.1/8", "10.0.0.0/33", "example.org", "10.0.0", "::/129", "10.0.0.0/8 "])
def test_a_network_is_written_as_one(port: Port, network: str) -> None:
    assert refusal(mint(port, ip_allowlist=[network])) == (400, "invalid_value", "ip_allowlist.0")


@pytest.mark.parametrize("field", ["scopes", "allowed_adapters", "ip_allowlist"])
def test_an_empty_list_is_neither_nothing_nor_everything(port: Port, field: str) -> None:
    assert refusal(mint(port, **{field: []})) == (400, "invalid_value", field)


def test_n5_a_key_names_adapters_of_its_own_tenant(port: Port, context: PlatformContext, orchard: Tenant) -> None:
    with context.db.platform.unit_of_work() as work:
        a_version(work, orchard, name="haiku")
    foreign = mint(port, allowed_adapters=["haiku"])
    missing = mint(port, allowed_adapters=["nothing"])
    assert refusal(foreign)[:2] == refusal(missing)[:2] == (404, "not_found")
    assert (
        foreign.text.replace("haiku", "nothing").partition("request_id")[0] == missing.text.partition("request_id")[0]
    )


def test_a_key_without_scopes_for_keys_changes_rotates_and_revokes_nothing(
    api: TestClient, context: PlatformContext, harbour: Tenant
) -> None:
    keys_may_make_keys(context, harbour)
    others = [scope for scope in SCOPES if scope != "keys:write"]
    key = a_key(context, harbour, *others)
    port, one = Port(api, "/v1", key.auth, key.key_id), f"/keys/{harbour.key_id}"
    for method, path, body in [
        ("PATCH", one, {"name": "x"}),
        ("POST", f"{one}/rotate", {}),
        ("POST", f"{one}/revoke", {}),
        ("PUT", f"{one}/limits", {"limits": {}}),
    ]:
        assert refusal(port.call(method, path, body))[:2] == (403, "insufficient_scope")


def test_a_key_gets_no_secret_of_a_stronger_one_by_rotating_it(
    api: TestClient, context: PlatformContext, harbour: Tenant
) -> None:
    weak = narrow(context, api, harbour, scopes=("keys:write", "inference"))
    limited = a_key(context, harbour, "keys:write", "inference", name="limited", limits={"rpm": (60, None)})
    slow = Port(api, "/v1", limited.auth, limited.key_id)
    assert refusal(weak.call("POST", f"/keys/{harbour.key_id}/rotate", {})) == (403, "insufficient_scope", "scopes")
    assert refusal(slow.call("POST", f"/keys/{weak.actor}/rotate", {})) == (403, "insufficient_scope", "limits.rpm")
    assert weak.call("POST", f"/keys/{limited.key_id}/rotate", {}).status_code == 201


def test_a_key_makes_no_key_stronger_than_itself_by_changing_it(
    api: TestClient, context: PlatformContext, harbour: Tenant
) -> None:
    weak = narrow(context, api, harbour, scopes=("keys:write", "inference"), limits={"max_n": (2, None)})
    made = mint(weak).json()
    for body in ({"scopes": ["inference", "audit:read"]}, {"scopes": list(SCOPES)}):
        assert refusal(weak.call("PATCH", f"/keys/{made['id']}", body)) == (403, "insufficient_scope", "scopes")
    limits = f"/keys/{made['id']}/limits"
    for figures in ({"value": 3}, None):
        refused = weak.call("PUT", limits, {"limits": {"max_n": figures}})
        assert refusal(refused) == (403, "insufficient_scope", "limits.max_n")
    # Of itself, too.
    own = weak.call("PUT", f"/keys/{weak.actor}/limits", {"limits": {"max_n": None}})
    assert refusal(own) == (403, "insufficient_scope", "limits.max_n")
