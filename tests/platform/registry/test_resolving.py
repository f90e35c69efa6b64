"""Which version a model's name means, and for whom."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from sqlalchemy import event

from lorikeet_platform.context import PlatformContext
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.registry.aliasing.aliases import AliasKey, Change
from lorikeet_platform.registry.aliasing.changes import perform, plan_set
from lorikeet_platform.registry.catalogue import find_adapter
from lorikeet_platform.registry.resolve import resolve_model
from tests.support.platform_parts import BASE, Tenant, a_version


def resolve(context: PlatformContext, tenant: Tenant, model: str) -> int | None:
    with context.db.platform.read() as session:
        return resolve_model(session, tenant.id, model, BASE).number


@pytest.fixture(autouse=True)
def _versions(context: PlatformContext, harbour: Tenant) -> None:
    """`live` at 2; 3 is ready without an alias; 4 was rejected; 5 is being validated."""
    with context.db.platform.unit_of_work() as work:
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
    with context.db.platform.read() as session, pytest.raises(PlatformError, match="model_not_found"):
        resolve_model(session, harbour.id, "pirate", "another-base")


def point(
    context: PlatformContext, tenant: Tenant, *shares: tuple[int, int], sticky: str = "none", alias: str = "live"
) -> None:
    with context.db.platform.unit_of_work() as work:
        adapter = find_adapter(work, tenant.id, "pirate")
        key = AliasKey(tenant.id, adapter.id, alias)
        change = Change(actor="system", now=1)
        perform(work, plan_set(work, key, shares, sticky=sticky, guard=None, change=change))


def draws(context: PlatformContext, tenant: Tenant, n: int, user: str | None = None) -> Counter[int | None]:
    with context.db.platform.read() as session:
        return Counter(resolve_model(session, tenant.id, "pirate", BASE, user=user).number for _ in range(n))


def of_users(context: PlatformContext, tenant: Tenant, n: int, model: str = "pirate") -> dict[str, int | None]:
    with context.db.platform.read() as session:
        return {
            user: resolve_model(session, tenant.id, model, BASE, user=user).number
            for user in (f"user-{number}" for number in range(n))
        }


def test_an_alias_with_several_targets_draws_them_by_weight(context: PlatformContext, harbour: Tenant) -> None:
    point(context, harbour, (1, 70), (2, 20), (3, 10))
    counts = draws(context, harbour, 2_000)
    for number, share in ((1, 0.7), (2, 0.2), (3, 0.1)):
        assert abs(counts[number] / 2_000 - share) < 0.05  # five standard deviations at the widest


def test_a_sticky_alias_gives_a_user_the_same_version_every_time(context: PlatformContext, harbour: Tenant) -> None:
    point(context, harbour, (1, 90), (2, 10), sticky="user")
    first = of_users(context, harbour, 1_000)
    assert first == of_users(context, harbour, 1_000)
    assert 50 < Counter(first.values())[2] < 150
    assert len(draws(context, harbour, 200)) == 2  # nobody in particular: by chance
    assert all(len(draws(context, harbour, 20, user=name)) == 1 for name in ("a", "b", "ä\udc80"))


def test_a_growing_canary_keeps_the_users_it_had(context: PlatformContext, harbour: Tenant) -> None:
    before: set[str] = set()
    for share in (10, 30, 80):
        point(context, harbour, (1, 100 - share), (2, share), sticky="user")
        canary = {user for user, number in of_users(context, harbour, 300).items() if number == 2}
        assert before < canary
        before = canary


Shares = tuple[tuple[int, int], ...]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (((1, 50), (2, 10), (3, 40)), ((1, 70), (2, 20), (3, 10))),
        (((1, 80), (2, 10), (3, 10)), ((1, 70), (2, 10), (3, 20))),
        (((1, 90), (2, 10)), ((1, 80), (2, 10), (3, 10))),
        (((1, 60), (2, 20), (3, 20)), ((1, 80), (2, 20))),
    ],
)
def test_users_move_only_to_a_target_that_grew_by_a_larger_factor(
    context: PlatformContext, harbour: Tenant, before: Shares, after: Shares
) -> None:
    n = 1_000
    placed = []
    for shares in (before, after):
        point(context, harbour, *shares, sticky="user")
        placed.append(of_users(context, harbour, n))
        for number, weight in shares:
            share = sum(1 for chosen in placed[-1].values() if chosen == number) / n
            assert abs(share - weight / 100) < 5 * (weight / 100 * (1 - weight / 100) / n) ** 0.5
    was, now = dict(before), dict(after)
    growth = {number: now.get(number, 0) / was[number] if number in was else math.inf for number in was | now}
    moves = {(placed[0][user], placed[1][user]) for user in placed[0]}
    assert {pair for pair in moves if pair[0] != pair[1]}
    for one, other in moves:
        assert one is not None
        assert other is not None
        assert one == other or growth[other] > growth[one]


def test_the_same_user_is_drawn_anew_by_another_alias(context: PlatformContext, harbour: Tenant) -> None:
    drawn = []
    for alias in ("live", "best"):
        point(context, harbour, (1, 50), (2, 50), sticky="user", alias=alias)
        drawn.append(of_users(context, harbour, 400, model=f"pirate@{alias}"))
    assert 120 < sum(drawn[0][user] == drawn[1][user] for user in drawn[0]) < 280


def test_an_alias_that_is_not_sticky_does_not_look_at_the_user(context: PlatformContext, harbour: Tenant) -> None:
    point(context, harbour, (1, 50), (2, 50))
    assert len(draws(context, harbour, 100, user="somebody")) == 2


@pytest.mark.parametrize("model", ["pirate", "pirate@live", "pirate:1"])
def test_a_model_is_resolved_in_one_statement(context: PlatformContext, harbour: Tenant, model: str) -> None:
    statements: list[str] = []

    def note(*arguments: object) -> None:
        statements.append(str(arguments[2]))

    event.listen(context.db.engine, "before_cursor_execute", note)
    resolve(context, harbour, model)
    event.remove(context.db.engine, "before_cursor_execute", note)
    assert len([statement for statement in statements if not statement.startswith("BEGIN")]) == 1
