"""What an administrator's request says beyond what its route takes is refused by name, and nothing is done."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from lorikeet_platform.context import PlatformContext
from tests.support.platform_parts import Tenant
from tests.support.registry_port import refusal
from tests.support.tenant_things import dump

REQUESTS: list[tuple[str, str, dict[str, Any] | None]] = [
    ("GET", "/tenants", None),
    ("POST", "/tenants", {"slug": "brand-new"}),
    ("GET", "/tenants/harbour", None),
    ("PATCH", "/tenants/harbour", {"weight": 2.0}),
    ("POST", "/tenants/harbour/suspend", {}),
    ("POST", "/tenants/harbour/resume", None),
    ("GET", "/overview", None),
    ("GET", "/engine", None),
    ("GET", "/findings", None),
    ("POST", "/leaked_keys", {"key": "SECRET"}),
]


@pytest.mark.parametrize(("method", "path", "body"), REQUESTS)
def test_an_option_that_a_route_does_not_know_is_refused(
    admin: TestClient,
    context: PlatformContext,
    as_admin: dict[str, str],
    harbour: Tenant,
    method: str,
    path: str,
    body: dict[str, Any] | None,
) -> None:
    if body == {"key": "SECRET"}:
        body = {"key": harbour.secret}
    before = dump(context.db)
    answer = admin.request(method, f"/admin/v1{path}?dry_run=true", json=body, headers=as_admin)
    assert refusal(answer) == (400, "unknown_parameter", "dry_run")
    if body is None and method == "POST":
        answer = admin.request(method, f"/admin/v1{path}", json={"dry_run": True}, headers=as_admin)
        assert refusal(answer) == (400, "unknown_parameter", "dry_run")
    assert dump(context.db) == before
