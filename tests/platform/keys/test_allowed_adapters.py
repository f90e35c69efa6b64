"""A key limited to adapters uses those and nothing else; what its tenant does not have is simply not there."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient

from lorikeet_platform.auth.scopes import DEFAULT_SCOPES
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.registry.resolve import resolve_model
from tests.support.keys import a_key
from tests.support.platform_parts import BASE, Tenant, a_version
from tests.support.registry_port import refusal

OWN_BUT_NOT_ALLOWED = [BASE, "haiku", "haiku@live", "haiku:1"]
NOT_THERE = ["foreign", "missing", "pirate:9", "pirate@beta", "haiku:9", "../pirate", "Pirate"]


@pytest.fixture
def limited(context: PlatformContext, harbour: Tenant, orchard: Tenant) -> Tenant:
    """A key for `pirate` alone, of a tenant that has `haiku` as well."""
    with context.db.platform.unit_of_work() as work:
        a_version(work, harbour, name="pirate")
        a_version(work, harbour, name="haiku")
        a_version(work, orchard, name="foreign")
    return a_key(context, harbour, *DEFAULT_SCOPES, allowed_adapters=["pirate"])


def ask(api: TestClient, key: Tenant, model: str) -> httpx2.Response:
    body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": "one"}]}
    return api.post("/v1/chat/completions", json=body, headers=key.auth)


@pytest.mark.parametrize("model", OWN_BUT_NOT_ALLOWED)
def test_another_model_of_its_tenant_is_not_for_the_key(api: TestClient, limited: Tenant, model: str) -> None:
    refused = (403, "adapter_not_allowed_for_key", "model")
    assert refusal(ask(api, limited, model)) == refused
    assert refusal(api.get(f"/v1/models/{model}", headers=limited.auth)) == refused


@pytest.mark.parametrize("model", NOT_THERE)
def test_n5_what_its_tenant_does_not_have_is_not_found_like_for_any_key(
    api: TestClient, limited: Tenant, harbour: Tenant, model: str
) -> None:
    for key in (limited, harbour):
        assert refusal(ask(api, key, model))[:2] == (404, "model_not_found")


@pytest.mark.parametrize("model", ["pirate", "pirate@live", "pirate:1"])
def test_its_own_adapter_answers_under_each_of_its_names(
    api: TestClient, context: PlatformContext, limited: Tenant, model: str
) -> None:
    with context.db.tenant(limited.id).read() as work:
        allowed = frozenset({resolve_model(work, limited.id, "pirate", BASE).adapter_id or ""})
        assert resolve_model(work, limited.id, model, BASE, allowed_adapters=allowed).number == 1
        with pytest.raises(PlatformError, match="adapter_not_allowed_for_key"):
            resolve_model(work, limited.id, "haiku", BASE, allowed_adapters=allowed)
    assert api.get(f"/v1/models/{model}", headers=limited.auth).status_code == 200


def test_n10_the_list_of_models_has_what_the_key_may_use(api: TestClient, limited: Tenant, harbour: Tenant) -> None:
    def listed(key: Tenant) -> list[str]:
        return [model["id"] for model in api.get("/v1/models", headers=key.auth).json()["data"]]

    assert listed(limited) == ["pirate"]
    assert listed(harbour) == [BASE, "haiku", "pirate"]


def test_a_new_adapter_of_the_same_name_is_another_one(
    api: TestClient, context: PlatformContext, limited: Tenant, harbour: Tenant
) -> None:
    assert api.delete("/v1/adapters/pirate", headers=harbour.auth).status_code == 204
    assert refusal(ask(api, limited, "pirate"))[:2] == (404, "model_not_found")
    with context.db.platform.unit_of_work() as work:
        a_version(work, harbour, name="new")
    assert refusal(ask(api, limited, "new"))[:2] == (403, "adapter_not_allowed_for_key")
    assert api.get("/v1/keys/self", headers=limited.auth).json()["allowed_adapters"] == []
