"""No row can point at another tenant's, and no event can be changed, whoever writes the SQL (N-5, N-75)."""

from __future__ import annotations

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, IntegrityError

from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import Table, tenant_tables
from tests.platform.db.isolation.conftest import Pair
from tests.support.tenant_rows import fill_every_table

REFERENCES = sorted(
    (table, tuple(element.parent.name for element in key.elements))
    for table in tenant_tables()
    for key in Table.metadata.tables[table].foreign_key_constraints
    if key.referred_table.name in tenant_tables()
)


def test_the_two_tenants_have_rows_in_every_table(database: Database, pair: Pair) -> None:
    with database.engine.begin() as work:
        for table in sorted(tenant_tables()):
            assert set(work.scalars(text(f"SELECT tenant_id FROM {table}"))) == {pair.a, pair.b}, table


@pytest.mark.parametrize(("table", "columns"), REFERENCES)
def test_n_5_a_reference_to_another_tenants_row_is_refused(
    database: Database, pair: Pair, table: str, columns: tuple[str, ...]
) -> None:
    [key] = [
        key
        for key in Table.metadata.tables[table].foreign_key_constraints
        if tuple(element.parent.name for element in key.elements) == columns
    ]
    theirs = {
        element.parent.name: element.column.name for element in key.elements if element.parent.name != "tenant_id"
    }
    with database.engine.connect() as work:
        row = work.execute(
            text(f"SELECT * FROM {key.referred_table.name} WHERE tenant_id = :tenant"), {"tenant": pair.b}
        ).one()
        values = {mine: getattr(row, column) for mine, column in theirs.items()}
        assignments = ", ".join(f"{name} = :{name}" for name in values)
        with pytest.raises(IntegrityError, match=r"(?i)foreign key"):
            work.execute(
                text(f"UPDATE {table} SET {assignments} WHERE tenant_id = :tenant"), values | {"tenant": pair.a}
            )


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_events SET actor = 'system' WHERE tenant_id = :tenant",
        "DELETE FROM audit_events WHERE tenant_id = :tenant",
    ],
)
def test_n_75_events_are_neither_changed_nor_removed(database: Database, pair: Pair, statement: str) -> None:
    check_refused(database, pair, statement)


def test_n_75_events_are_not_replaced_on_sqlite(db: Database) -> None:
    """INSERT OR REPLACE removes what has the same key, or the same rowid, and no trigger of a DELETE hears of it."""
    with db.platform.unit_of_work() as work:
        pair = Pair(fill_every_table(work, "aaa"), fill_every_table(work, "bbb"))
    columns = "id, at, actor_kind, actor, action, subject, details"
    for statement in (
        f"INSERT OR REPLACE INTO audit_events ({columns}) SELECT id, 1, 'system', 'system', 'x', 'y', '{{}}'"
        " FROM audit_events WHERE tenant_id = :tenant",
        f"REPLACE INTO audit_events (rowid, {columns}) SELECT rowid, 'evt_0', 1, 'system', 'system', 'x', 'y', '{{}}'"
        " FROM audit_events WHERE tenant_id = :tenant",
        f"INSERT INTO audit_events ({columns}) SELECT id, 1, 'system', 'system', 'x', 'y', '{{}}' FROM audit_events"
        " WHERE tenant_id = :tenant ON CONFLICT (id) DO UPDATE SET actor = 'system'",
    ):
        check_refused(db, pair, statement)


@pytest.mark.slow
def test_n_75_events_are_not_truncated_on_postgres(postgres: Database, two: Pair) -> None:
    check_refused(postgres, two, "TRUNCATE audit_events")


def check_refused(database: Database, pair: Pair, statement: str) -> None:
    """By anyone: the tenant's transactions, the platform's, the tables' owner."""
    values = {"tenant": pair.a} if ":tenant" in statement else {}
    with database.engine.connect() as connection:
        before = connection.execute(text("SELECT * FROM audit_events ORDER BY id")).all()
    for transactions in (database.tenant(pair.a), database.platform):
        with pytest.raises(DBAPIError), transactions.unit_of_work() as work:
            work.execute(text(statement), values)
    with pytest.raises(DBAPIError, match="audit events are only added"), database.engine.begin() as connection:
        connection.execute(text(statement), values)
    with database.engine.connect() as connection:
        assert connection.execute(text("SELECT * FROM audit_events ORDER BY id")).all() == before
    assert len(before) == 2
