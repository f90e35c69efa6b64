"""No row can point at another tenant's, and no event can be changed, whoever writes the SQL (N-5, N-75)."""

from __future__ import annotations

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, IntegrityError

from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import Table, tenant_tables
from tests.platform.db.isolation.conftest import Pair

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


@pytest.mark.parametrize("statement", ["UPDATE audit_events SET actor = 'system'", "DELETE FROM audit_events"])
def test_n_75_events_are_neither_changed_nor_removed(database: Database, pair: Pair, statement: str) -> None:
    """By no one: not the tenant's transactions, not the platform's, not the tables' owner."""
    for transactions in (database.tenant(pair.a), database.platform):
        with pytest.raises(DBAPIError), transactions.unit_of_work() as work:
            work.execute(text(statement))
    with pytest.raises(DBAPIError, match="audit events are only added"), database.engine.begin() as connection:
        connection.execute(text(statement))
    with database.platform.read() as work:
        assert work.scalar(text("SELECT count(*) FROM audit_events")) == 2
