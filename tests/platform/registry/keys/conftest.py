"""Keys of a tenant that has two adapters, `alpha` and `beta`, each with two ready versions and an open upload."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from lorikeet_platform.context import PlatformContext
from tests.support.adapter_requests import Asking
from tests.support.keys import a_key
from tests.support.platform_parts import Tenant, Uploader, a_version


@pytest.fixture
def whole(api: TestClient, context: PlatformContext, harbour: Tenant, uploader: Uploader) -> Asking:
    """A key with every scope and every adapter."""
    with context.db.platform.unit_of_work() as work:
        for name in ("alpha", "beta"):
            a_version(work, harbour, name=name)
            a_version(work, harbour, name=name, number=2, live=False)
    places = {name: uploader.create(b"12345678", adapter=name).headers["location"] for name in ("alpha", "beta")}
    key = a_key(context, harbour, "adapters:read", "adapters:write", "deployments:write", name="whole")
    return Asking(api, key, {name: place.rpartition("/")[2] for name, place in places.items()})
