"""Keys on both ports: the administrator signed in, and a key of the tenant that may make keys."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from lorikeet_platform.auth.scopes import SCOPES
from lorikeet_platform.context import PlatformContext
from tests.support.keys import a_key, keys_may_make_keys
from tests.support.platform_parts import Tenant
from tests.support.registry_port import Port


@pytest.fixture
def owner(admin: TestClient, as_admin: dict[str, str], harbour: Tenant) -> Port:
    """Harbour's keys, by the administrator."""
    return Port(admin, f"/admin/v1/tenants/{harbour.slug}", as_admin, "administrator")


@pytest.fixture
def maker(api: TestClient, context: PlatformContext, harbour: Tenant) -> Port:
    """Harbour's keys, by a key of it with every scope there is."""
    keys_may_make_keys(context, harbour)
    key = a_key(context, harbour, *SCOPES, name="maker")
    return Port(api, "/v1", key.auth, key.key_id)


@pytest.fixture(params=["owner", "maker"])
def port(request: pytest.FixtureRequest) -> Port:
    """The same routes, by each of the two."""
    found: Port = request.getfixturevalue(request.param)
    return found
