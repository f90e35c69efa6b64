"""A tenant with an adapter of three ready versions, on both ports."""

from __future__ import annotations

from typing import cast

import pytest
from fastapi.testclient import TestClient

from lorikeet_platform.context import PlatformContext
from tests.support.platform_parts import Tenant, a_version
from tests.support.registry_port import Port
from tests.support.scripted_engine import ScriptedEngine


@pytest.fixture(params=["tenant", "admin"])
def port(
    request: pytest.FixtureRequest, api: TestClient, admin: TestClient, harbour: Tenant, as_admin: dict[str, str]
) -> Port:
    """harbour's adapters by its key, then by an administrator."""
    if request.param == "tenant":
        return Port(api, "/v1", harbour.auth, harbour.key_id)
    return Port(admin, f"/admin/v1/tenants/{harbour.slug}", as_admin, "administrator")


@pytest.fixture
def operator(admin: TestClient, harbour: Tenant, as_admin: dict[str, str]) -> Port:
    return Port(admin, f"/admin/v1/tenants/{harbour.slug}", as_admin, "administrator")


@pytest.fixture
def pirate(context: PlatformContext, harbour: Tenant) -> list[str]:
    """`live` at version 1 of three ready ones; their digests by number, from 1."""
    with context.db.platform.unit_of_work() as work:
        versions = [a_version(work, harbour, name="pirate", number=number, live=number == 1) for number in (1, 2, 3)]
        return ["", *(version.digest or "" for version in versions)]


@pytest.fixture
def engine(context: PlatformContext) -> ScriptedEngine:
    return cast(ScriptedEngine, context.engine_client)
