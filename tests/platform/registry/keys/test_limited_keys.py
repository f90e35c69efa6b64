"""A key limited to adapters reads and changes those and no others, by whichever route.

Other tenants' adapters stay as if they were not there. Deleting what serves takes the scope that decides what serves.
"""

from __future__ import annotations

import pytest

from lorikeet_platform.context import PlatformContext
from lorikeet_platform.ids import new_id
from tests.support.adapter_requests import Asking
from tests.support.keys import a_key
from tests.support.platform_parts import CONFIG, TUS, Tenant, a_version, encode_metadata
from tests.support.registry_port import refusal
from tests.support.tenant_things import dump

NOT_FOR_IT = (403, "adapter_not_allowed_for_key")


@pytest.fixture
def limited(context: PlatformContext, harbour: Tenant, whole: Asking) -> Asking:
    """A key for `alpha` alone."""
    return whole.with_key(
        a_key(
            context,
            harbour,
            "adapters:read",
            "adapters:write",
            "deployments:write",
            name="limited",
            allowed_adapters=["alpha"],
        )
    )


def test_n10_no_route_reads_or_changes_another_adapter_of_the_tenant(context: PlatformContext, limited: Asking) -> None:
    before = dump(context.db)
    for what, request in limited.requests("beta").items():
        answer = limited.api.send(request)
        assert answer.status_code == 403, (what, answer.text)
        if request.method != "HEAD":
            assert refusal(answer)[:2] == NOT_FOR_IT, what
    assert dump(context.db) == before


def test_n10_every_route_reads_and_changes_its_own_adapter(limited: Asking) -> None:
    for what, request in limited.requests("alpha").items():
        assert limited.api.send(request).status_code != 403, what


def test_n10_lists_show_its_own_adapters_only(limited: Asking, whole: Asking) -> None:
    def listed(asking: Asking, path: str, field: str) -> list[str]:
        return sorted(entry[field] for entry in asking.ask("GET", path).json()["data"])

    assert listed(limited, "/adapters", "name") == ["alpha"]
    assert listed(whole, "/adapters", "name") == ["alpha", "beta"]
    assert listed(limited, "/uploads", "adapter") == ["alpha"]
    assert listed(whole, "/uploads", "adapter") == ["alpha", "beta"]
    assert listed(limited, "/uploads?adapter=beta", "adapter") == []


def test_n10_it_makes_no_new_adapter(limited: Asking) -> None:
    told = encode_metadata({"adapter": "gamma", "filename": CONFIG, "sha256": "0" * 64})
    announced = limited.ask("POST", "/uploads", headers=TUS | {"upload-length": "4", "upload-metadata": told})
    assert refusal(announced)[:2] == NOT_FOR_IT
    sealed = limited.ask("POST", "/adapters/gamma/versions", json={"files": {CONFIG: new_id("upl")}})
    assert sealed.status_code in (400, 403)  # its file set is looked at, too
    assert limited.ask("GET", "/adapters").json()["data"][0]["name"] == "alpha"


def test_n5_what_its_tenant_does_not_have_is_not_found(
    context: PlatformContext, limited: Asking, orchard: Tenant
) -> None:
    with context.db.platform.unit_of_work() as work:
        a_version(work, orchard, name="foreign")
    for name in ("foreign", "missing"):
        for path in ("", "/versions/1", "/aliases/live", "/versions/1/files"):
            assert refusal(limited.ask("GET", f"/adapters/{name}{path}"))[:2] == (404, "not_found")
        assert refusal(limited.ask("DELETE", f"/adapters/{name}"))[:2] == (404, "not_found")


def test_an_adapter_with_aliases_is_deleted_only_by_who_may_say_what_serves(
    context: PlatformContext, harbour: Tenant, whole: Asking
) -> None:
    pusher = whole.with_key(a_key(context, harbour, "adapters:read", "adapters:write", name="pusher"))
    refused = pusher.ask("DELETE", "/adapters/alpha")
    assert refusal(refused)[:2] == (403, "insufficient_scope")
    assert "deployments:write" in refused.json()["error"]["message"]
    assert pusher.ask("GET", "/adapters/alpha/aliases/live").status_code == 200
    assert whole.ask("DELETE", "/adapters/alpha/aliases/live").status_code == 204
    assert pusher.ask("DELETE", "/adapters/alpha").status_code == 204
    assert whole.ask("DELETE", "/adapters/beta").status_code == 204
