"""Transactions behave the same on SQLite and Postgres; constraints hold tenants apart on both."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext

import pytest
from sqlalchemy import select, text, update
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import Session

from lorikeet_platform.api_keys.service import create_key
from lorikeet_platform.auth.pepper import Pepper
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import AliasTarget, ApiKey, Tenant
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.jobs import queue
from lorikeet_platform.tenants.service import create_tenant
from tests.support import platform_parts
from tests.support.usage_rows import usage_record

PEPPER = Pepper(1, {1: b"p" * 32})


def a_tenant(database: Database, slug: str) -> platform_parts.Tenant:
    with database.platform.unit_of_work() as work:
        tenant = create_tenant(work, slug=slug, display_name=None, now=1)
        key, secret = create_key(work, PEPPER, tenant_id=tenant.id, name="first", now=1)
        return platform_parts.Tenant(tenant.id, slug, key.id, secret)


def test_what_a_failed_unit_of_work_wrote_is_gone(database: Database) -> None:
    def create_and_fail() -> None:
        with database.platform.unit_of_work() as work:
            create_tenant(work, slug="harbour", display_name=None, now=1)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        create_and_fail()
    with database.platform.read() as session:
        assert session.scalars(select(Tenant)).all() == []


def test_a_read_keeps_nothing_it_was_given(database: Database) -> None:
    # Postgres refuses the first statement that writes.
    with nullcontext() if database.is_sqlite else pytest.raises(DBAPIError), database.platform.read() as session:
        create_tenant(session, slug="harbour", display_name=None, now=1)
    with database.platform.read() as session:
        assert session.scalars(select(Tenant)).all() == []


def test_writers_at_once_lose_no_update(database: Database) -> None:
    tenant = a_tenant(database, "harbour")

    def count_up() -> None:
        for _ in range(10):
            with database.platform.unit_of_work() as work:
                key = work.get_one(ApiKey, (tenant.id, tenant.key_id), with_for_update=True)
                key.last_used_at = (key.last_used_at or 0) + 1

    in_threads(count_up, 4)
    with database.platform.read() as session:
        assert session.get_one(ApiKey, (tenant.id, tenant.key_id)).last_used_at == 40


def test_a_tenants_slug_is_taken_once_even_by_two_at_once(database: Database) -> None:
    outcomes: list[str] = []

    def create() -> None:
        try:
            with database.platform.unit_of_work() as work:
                create_tenant(work, slug="harbour", display_name=None, now=1)
            outcomes.append("created")
        except PlatformError as error:
            outcomes.append(error.code)

    in_threads(create, 4)
    assert sorted(outcomes) == ["created", *["name_conflict"] * 3]


def test_a_row_cannot_point_at_another_tenants_row(database: Database) -> None:
    harbour, orchard = a_tenant(database, "harbour"), a_tenant(database, "orchard")
    with pytest.raises(IntegrityError), database.platform.unit_of_work() as work:
        work.add(usage_record(harbour, admitted_at=1, key_id=orchard.key_id))


def test_an_alias_cannot_point_at_another_adapters_version(database: Database) -> None:
    harbour = a_tenant(database, "harbour")
    with database.platform.unit_of_work() as work:
        pirate = platform_parts.a_version(work, harbour, name="pirate")
        haiku = platform_parts.a_version(work, harbour, name="haiku")
    with pytest.raises(IntegrityError), database.platform.unit_of_work() as work:
        work.execute(update(AliasTarget).where(AliasTarget.version_id == pirate.id).values(version_id=haiku.id))


def test_two_tenants_may_choose_the_same_names(database: Database) -> None:
    for tenant in (a_tenant(database, "harbour"), a_tenant(database, "orchard")):
        with database.platform.unit_of_work() as work:
            platform_parts.a_version(work, tenant, name="pirate")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE tenants SET status = 'gone'",
        "UPDATE tenants SET slug = 'ab'",
        "UPDATE api_keys SET status = 'maybe'",
        "UPDATE adapter_versions SET state = 'served'",
        "UPDATE adapter_versions SET digest = NULL",
        "UPDATE adapter_versions SET number = 0",
        "UPDATE adapters SET status = 'gone'",
        "UPDATE adapters SET status = 'deleted'",
        "UPDATE aliases SET revision = 0",
        "UPDATE aliases SET sticky = 'always'",
        "UPDATE alias_targets SET weight = 0",
        "UPDATE alias_targets SET weight = 101",
        "UPDATE jobs SET state = 'leased'",
        "UPDATE usage_records SET outcome = 'ok'",
        "UPDATE usage_records SET prompt_tokens = -1",
    ],
)
def test_a_row_that_makes_no_sense_is_refused_by_the_database(database: Database, statement: str) -> None:
    tenant = a_tenant(database, "harbour")
    with database.platform.unit_of_work() as work:
        version = platform_parts.a_version(work, tenant, name="pirate")
        queue.enqueue(work, tenant_id=tenant.id, kind="validate", version_id=version.id, now=1)
        work.add(usage_record(tenant, admitted_at=1))
    with pytest.raises(IntegrityError), database.platform.unit_of_work() as work:
        work.execute(text(statement))


def test_a_job_is_leased_by_one_of_many(database: Database) -> None:
    tenant = a_tenant(database, "harbour")
    with database.platform.unit_of_work() as work:
        version = platform_parts.a_version(work, tenant, name="pirate", state="validating")
        job_id = queue.enqueue(work, tenant_id=tenant.id, kind="validate", version_id=version.id, now=1).id
    leases: list[queue.LeasedJob | None] = []

    def lease() -> None:
        with database.platform.unit_of_work() as work:
            leases.append(queue.lease(work, job_id, 2))

    in_threads(lease, 4)
    assert sum(lease is not None for lease in leases) == 1


def test_sqlite_is_set_up_to_survive_a_power_cut_and_to_check_references(db: Database) -> None:
    with db.platform.read() as session:
        values = [pragma(session, name) for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")]
    assert values == ["wal", 2, 1, 5000]


def pragma(session: Session, name: str) -> object:
    return session.execute(text(f"PRAGMA {name}")).scalar_one()


def in_threads(work: Callable[[], None], n_threads: int) -> None:
    threads = [threading.Thread(target=work) for _ in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
