"""Both databases, each with two tenants and both ports; and how to ask them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient

from lorikeet_platform.app import create_admin_app, create_tenant_app
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.session import Database
from tests.support.ledger import DAY_US, NOON
from tests.support.platform_parts import FakeClock, Tenant, a_tenant, make_context


@pytest.fixture
def place(tmp_path: Path, database: Database) -> PlatformContext:
    return make_context(tmp_path, database, FakeClock(NOON + 2 * DAY_US))


@pytest.fixture
def tenant_port(place: PlatformContext) -> Iterator[TestClient]:
    with TestClient(create_tenant_app(place), raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def admin_port(place: PlatformContext) -> Iterator[TestClient]:
    with TestClient(create_admin_app(place), raise_server_exceptions=False) as client:
        client.headers["authorization"] = f"Bearer {place.admin_token}"
        yield client


@pytest.fixture
def mine(place: PlatformContext) -> Tenant:
    return a_tenant(place, "harbour")


@pytest.fixture
def foreign(place: PlatformContext) -> Tenant:
    return a_tenant(place, "orchard")


def get(client: TestClient, tenant: Tenant, path: str = "/v1/usage", **params: Any) -> httpx2.Response:
    return client.get(path, params=params, headers=tenant.auth)
