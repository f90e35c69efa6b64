"""Whoever migrates a Postgres owns the tables, and that is all it needs to be."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import ProgrammingError

from lorikeet_platform.db.migrate import every_row_in_sight, upgrade
from lorikeet_platform.db.tables import tenant_tables
from tests.support.databases import an_empty_postgres, an_owner
from tests.support.old_rows import ROWS, insert_rows

pytestmark = pytest.mark.slow
FORCED = "SELECT relname FROM pg_class WHERE relrowsecurity AND relforcerowsecurity"


@pytest.fixture
def urls(postgres_server: str, migrated_postgres: str) -> Iterator[tuple[str, str]]:
    """A database with rows, as its owner reaches it and as a superuser does.

    The roles are there already, made by another, so that the owner is no member of theirs.
    """
    with an_empty_postgres(postgres_server) as url, an_owner(url) as owners:
        upgrade(owners, "0003")
        engine = create_engine(url)
        with engine.begin() as work:
            insert_rows(work, ROWS["0003"])
        engine.dispose()
        upgrade(owners)
        yield owners, url


def tenants_seen(work: Connection) -> int:
    return len(work.execute(text("SELECT id FROM tenants")).all())


def forced(work: Connection) -> set[str]:
    return set(work.scalars(text(FORCED)))


def test_the_owner_sees_no_rows_but_in_the_steps_of_a_migration(urls: tuple[str, str]) -> None:
    engine = create_engine(urls[0])
    with engine.begin() as work:
        assert tenants_seen(work) == 0
        with every_row_in_sight(work):
            assert tenants_seen(work) == 2
        assert tenants_seen(work) == 0
        assert forced(work) == {*tenant_tables(), "tenants"}
    engine.dispose()


def test_row_security_is_forced_again_where_a_migration_fails(urls: tuple[str, str]) -> None:
    engine = create_engine(urls[0])
    with pytest.raises(ProgrammingError), engine.begin() as work, every_row_in_sight(work):
        work.execute(text("SELECT no_such_column FROM tenants"))
    with engine.begin() as work:
        assert forced(work) == {*tenant_tables(), "tenants"}
        assert tenants_seen(work) == 0
    engine.dispose()


def test_a_step_may_take_a_table_away_or_lay_its_protection_down(urls: tuple[str, str]) -> None:
    engine = create_engine(urls[0])
    with engine.begin() as work:
        with every_row_in_sight(work):
            work.execute(text("DROP TABLE usage_dirty"))
            work.execute(text("ALTER TABLE usage_rollups DISABLE ROW LEVEL SECURITY"))
        assert forced(work) == {*tenant_tables(), "tenants"} - {"usage_dirty", "usage_rollups"}
        work.rollback()
    engine.dispose()


def test_an_owner_that_may_not_create_roles_finds_them_made_by_another(
    postgres_server: str, migrated_postgres: str
) -> None:
    with an_empty_postgres(postgres_server) as url, an_owner(url) as owners:
        superuser = create_engine(url, isolation_level="AUTOCOMMIT")
        with superuser.connect() as work:
            work.execute(text(f"ALTER ROLE {name_of_login(owners)} NOCREATEROLE"))
        upgrade(owners)
        with superuser.connect() as work:
            assert forced(work) == {*tenant_tables(), "tenants"}
        superuser.dispose()


def name_of_login(owners: str) -> str:
    return owners.partition("://")[2].partition(":")[0]
