"""Keys that are made, rotated and revoked at the same moment, on both databases."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial

from sqlalchemy import func, select

from lorikeet_platform.api_keys.minting import Wanted
from lorikeet_platform.api_keys.revoking import revoke_key
from lorikeet_platform.api_keys.service import change_limits, create_key, rotate_key
from lorikeet_platform.auth.actor import ADMINISTRATOR, Actor
from lorikeet_platform.auth.pepper import Pepper
from lorikeet_platform.auth.principal import Principal
from lorikeet_platform.clock import now_us
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import ApiKey, AuditEvent, Tenant, TenantLimit
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.limits.effective import EffectiveLimits
from lorikeet_platform.tenants.service import create_tenant

PEPPER = Pepper(1, {1: b"p" * 32})
AT_ONCE = 8


def a_tenant(db: Database) -> str:
    with db.platform.unit_of_work() as work:
        return create_tenant(work, slug="harbour", display_name=None, now=1).id


def all_at_once(acts: list[Callable[[], None]]) -> Counter[str]:
    """How each ended: `ok`, or its refusal's code."""
    ends: list[str] = []
    barrier = threading.Barrier(len(acts))

    def run(act: Callable[[], None]) -> None:
        barrier.wait()
        try:
            act()
        except PlatformError as error:
            ends.append(error.code)
        else:
            ends.append("ok")

    threads = [threading.Thread(target=run, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Counter(ends)


def test_of_creations_at_the_limit_only_as_many_pass_as_fit(database: Database) -> None:
    tenant_id = a_tenant(database)
    with database.platform.unit_of_work() as work:
        work.add(TenantLimit(tenant_id=tenant_id, dimension="keys", value=3, updated_by=ADMINISTRATOR, updated_at=1))

    def create(number: int) -> None:
        with database.tenant(tenant_id).unit_of_work() as work:
            create_key(work, PEPPER, tenant_id=tenant_id, name=str(number), now=now_us())

    ends = all_at_once([lambda number=number: create(number) for number in range(AT_ONCE)])  # type: ignore[misc]
    assert ends == {"ok": 3, "key_quota_exceeded": AT_ONCE - 3}
    with database.platform.read() as work:
        assert work.scalar(select(func.count()).select_from(ApiKey)) == 3


def test_of_rotations_at_once_one_makes_the_successor(database: Database) -> None:
    tenant_id = a_tenant(database)
    with database.platform.unit_of_work() as work:
        key, _ = create_key(work, PEPPER, tenant_id=tenant_id, name="first", now=now_us())
    actor = Actor(tenant_id, ADMINISTRATOR)

    def rotate() -> None:
        with database.tenant(tenant_id).unit_of_work() as work:
            rotate_key(work, PEPPER, key.id, overlap_hours=24, actor=actor, now=now_us())

    assert all_at_once([rotate] * AT_ONCE) == {"ok": 1, "state_conflict": AT_ONCE - 1}
    with database.platform.read() as work:
        assert work.scalar(select(func.count()).select_from(ApiKey)) == 2


def test_revocations_at_once_are_one_event(database: Database) -> None:
    tenant_id = a_tenant(database)
    with database.platform.unit_of_work() as work:
        key, _ = create_key(work, PEPPER, tenant_id=tenant_id, name="first", now=now_us())
    actor = Actor(tenant_id, ADMINISTRATOR)

    def revoke() -> None:
        with database.tenant(tenant_id).unit_of_work() as work:
            revoke_key(work, key.id, actor=actor, now=now_us())

    assert all_at_once([revoke] * AT_ONCE) == {"ok": AT_ONCE}
    with database.platform.read() as work:
        events = work.scalars(select(AuditEvent.action).where(AuditEvent.subject == key.id)).all()
    assert sorted(events) == ["key.create", "key.revoke"]


def test_first_limits_through_both_keys_of_a_lineage_do_not_collide(database: Database) -> None:
    tenant_id = a_tenant(database)
    actor = Actor(tenant_id, ADMINISTRATOR)
    with database.tenant(tenant_id).unit_of_work() as work:
        old, _ = create_key(work, PEPPER, tenant_id=tenant_id, name="first", now=now_us())
        new, _ = rotate_key(work, PEPPER, old.id, overlap_hours=24, actor=actor, now=now_us())

    def limit(key_id: str, value: int) -> None:
        with database.tenant(tenant_id).unit_of_work() as work:
            change_limits(work, key_id, {"rpm": (value, None)}, actor=actor, now=now_us())

    keys = enumerate([old.id, new.id] * (AT_ONCE // 2))
    assert all_at_once([partial(limit, key, value) for value, key in keys]) == {"ok": AT_ONCE}


def test_keys_that_end_each_other_at_once_do_not_wait_in_a_ring(database: Database) -> None:
    """Each is the other's actor; one of them comes too late."""
    tenant_id = a_tenant(database)
    with database.platform.unit_of_work() as work:
        work.get_one(Tenant, tenant_id).keys_make_keys = True
        wanted = Wanted(scopes=["keys:write"])
        for name in ("one", "two"):
            create_key(work, PEPPER, tenant_id=tenant_id, name=name, wanted=wanted, now=now_us())
    with database.platform.read() as work:
        one, two = (work.scalars(select(ApiKey).where(ApiKey.name == name)).one() for name in ("one", "two"))

    def revoke(actor: ApiKey, target: ApiKey) -> None:
        with database.tenant(tenant_id).unit_of_work() as work:
            revoke_key(work, target.id, actor=as_actor(actor), now=now_us())

    assert all_at_once([lambda: revoke(one, two), lambda: revoke(two, one)]) == {"ok": 1, "invalid_api_key": 1}


def as_actor(key: ApiKey) -> Actor:
    principal = Principal(
        tenant_id=key.tenant_id,
        tenant_slug="harbour",
        tenant_status="active",
        key_id=key.id,
        subject_id=key.subject_id,
        scopes=frozenset(("keys:write",)),
        allowed_adapters=None,
        networks=(),
        limits=EffectiveLimits({}, {}),
        expires_at=None,
        weight=1.0,
        cache_salt=b"",
    )
    return Actor(key.tenant_id, key.id, principal)
