"""What a request says beyond what its route takes is refused by name, on both ports, and to strangers not at all."""

from __future__ import annotations

from fastapi.testclient import TestClient

from tests.support.platform_parts import Tenant
from tests.support.registry_port import Port, refusal

V2 = "/adapters/pirate/versions/2"


def test_a_query_that_a_route_does_not_know_is_refused(port: Port, pirate: list[str]) -> None:
    for path, name in (
        (f"{V2}?wiat=30", "wiat"),
        (f"{V2}?wait=0&limit=1", "limit"),
        ("/adapters?after=x", "after"),
        (f"{V2}/files?=", ""),
        ("/uploads?adaptor=pirate", "adaptor"),
    ):
        assert refusal(port.call("GET", path)) == (400, "unknown_parameter", name or None), path
    assert refusal(port.call("GET", f"{V2}?wait=0&wait=1")) == (400, "invalid_value", "wait")
    assert refusal(port.call("POST", f"{V2}/retire?force=true", {})) == (400, "unknown_parameter", "force")
    assert port.state(2) == "ready"
    assert port.call("GET", f"{V2}?wait=0").status_code == 200
    assert port.call("GET", "/uploads?adapter=pirate").status_code == 200


def test_a_body_where_none_is_taken_is_refused(port: Port, pirate: list[str]) -> None:
    assert port.act(2, "retire").status_code == 200
    for action in ("restore", "retry"):
        answer = port.call("POST", f"{V2}/{action}", {"alias": "live"})
        assert refusal(answer) == (400, "unknown_parameter", "alias")
    assert refusal(port.call("DELETE", V2, {"force": True})) == (400, "unknown_parameter", "force")
    assert refusal(port.call("POST", f"{V2}/restore", [1])) == (400, "invalid_json", None)
    assert port.state(2) == "retired"
    assert port.call("POST", f"{V2}/restore", {}).status_code == 200, "an empty object says nothing"


def test_a_quarantine_has_no_force_to_be_switched_off(
    admin: TestClient, as_admin: dict[str, str], pirate: list[str]
) -> None:
    address = "/admin/v1/tenants/harbour/adapters/pirate/versions/2"
    refused = admin.post(f"{address}/quarantine", json={"force": False}, headers=as_admin)
    assert refusal(refused) == (400, "unknown_parameter", "force")
    assert (
        admin.post(f"{address}/quarantine", json={"reason": "odd"}, headers=as_admin).json()["state"] == "quarantined"
    )
    released = admin.post(f"{address}/release", json={"force": True}, headers=as_admin)
    assert refusal(released) == (400, "unknown_parameter", "force")


def test_a_stranger_is_told_only_that_he_is_one(api: TestClient, harbour: Tenant, pirate: list[str]) -> None:
    assert api.get(f"/v1{V2}?wiat=30").status_code == 401
    assert api.post(f"/v1{V2}/restore", json={"alias": "live"}).status_code == 401
