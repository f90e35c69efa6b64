"""Which version a model's name means, and for whom."""

from __future__ import annotations

import pytest

from lorikeet_platform.context import PlatformContext
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.registry.resolve import resolve_model
from tests.support.platform_parts import BASE, Tenant, a_version


def resolve(context: PlatformContext, tenant: Tenant, model: str) -> int | None:
    with context.db.read() as session:
        return resolve_model(session, tenant.id, model, BASE).number


@pytest.fixture(autouse=True)
def _versions(context: PlatformContext, harbour: Tenant) -> None:
    """`live` at 2; 3 is ready without an alias; 4 was rejected; 5 is being validated."""
    with context.db.unit_of_work() as work:
        for number, state, live in [(1, "ready", True), (2, "ready", True), (3, "ready", False)]:
            a_version(work, harbour, name="pirate", number=number, state=state, live=live)
        a_version(work, harbour, name="pirate", number=4, state="rejected")
        a_version(work, harbour, name="pirate", number=5, state="validating")


@pytest.mark.parametrize(
    ("model", "number"), [(BASE, None), ("pirate", 2), ("pirate@live", 2), ("pirate:1", 1), ("pirate:3", 3)]
)
def test_a_name_means_one_version(context: PlatformContext, harbour: Tenant, model: str, number: int | None) -> None:
    assert resolve(context, harbour, model) == number


@pytest.mark.parametrize(
    "model",
    [
        "pirate:4", "pirate:5", "pirate:6", "pirate:0", "pirate:01", "pirate:-1", "pirate:x", "pirate:", "pirate@",
        "pirate@best", "pirate@live:1", "pirat", "Pirate", "harbour/pirate", "", "@live", f"{BASE}@live", f"{BASE}:1",
        "pirate:99999999999999999999", "pirate\x00", "%",
    ],
)  # fmt: skip
def test_everything_else_is_one_not_found(context: PlatformContext, harbour: Tenant, model: str) -> None:
    with pytest.raises(PlatformError) as caught:
        resolve(context, harbour, model)
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


@pytest.mark.parametrize("model", ["pirate", "pirate@live", "pirate:1"])
def test_another_tenants_adapter_is_missing_like_none(context: PlatformContext, orchard: Tenant, model: str) -> None:
    with pytest.raises(PlatformError) as theirs:
        resolve(context, orchard, model)
    with pytest.raises(PlatformError) as missing:
        resolve(context, orchard, model.replace("pirate", "nobody"))
    assert theirs.value.message == missing.value.message.replace("nobody", "pirate")
    assert theirs.value.code == missing.value.code


def test_an_adapter_of_another_base_model_is_not_found(context: PlatformContext, harbour: Tenant) -> None:
    with context.db.read() as session, pytest.raises(PlatformError, match="model_not_found"):
        resolve_model(session, harbour.id, "pirate", "another-base")
