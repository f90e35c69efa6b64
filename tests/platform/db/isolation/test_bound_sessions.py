"""A session that is bound to a tenant neither sees nor writes rows of another, on both databases."""

from __future__ import annotations

from typing import Any, cast

import pytest
from sqlalchemy import Table as SqlTable
from sqlalchemy import bindparam, delete, event, exists, func, insert, inspect, literal, select, text, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import aliased
from sqlalchemy.orm.exc import StaleDataError

from lorikeet_platform.db import connections
from lorikeet_platform.db.ownership import ForeignRow
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import (
    Adapter,
    AdapterVersion,
    ApiKey,
    AuditEvent,
    BudgetCounter,
    DirtyBucket,
    Table,
    Tenant,
    TenantLimit,
    TenantOwned,
    UsageCost,
    UsageRecord,
)
from tests.platform.db.isolation.conftest import Pair

OWNED = sorted(
    (mapper.class_ for mapper in Table.registry.mappers if issubclass(mapper.class_, TenantOwned)),
    key=lambda table: table.__name__,
)
# What a tenant is held by: on Postgres not its own to change.
HELD_BY = {ApiKey, BudgetCounter, TenantLimit, UsageCost, UsageRecord}
REFUSED = (ForeignRow, DBAPIError)


@pytest.mark.parametrize("table", OWNED)
def test_every_table_shows_the_tenants_rows_alone(database: Database, pair: Pair, table: Any) -> None:
    with database.platform.read() as work:
        foreign = work.scalars(select(table).where(table.tenant_id == pair.b)).one()
        identity = inspect(foreign).identity
    with database.tenant(pair.a).read() as work:
        assert [row.tenant_id for row in work.scalars(select(table))] == [pair.a]
        assert work.scalars(select(table).where(table.tenant_id == pair.b)).all() == []
        assert work.get(table, identity) is None
        assert work.scalar(select(func.count()).select_from(table)) == 1
        other = aliased(table)
        assert work.scalars(select(other.tenant_id)).all() == [pair.a]
        assert work.query(table).count() == 1


@pytest.mark.parametrize("table", [table for table in OWNED if table is not AuditEvent])
def test_a_statement_without_a_condition_changes_the_tenants_rows_alone(
    database: Database, pair: Pair, table: Any
) -> None:
    if table in HELD_BY and not database.is_sqlite:
        with pytest.raises(DBAPIError, match="permission denied"), database.tenant(pair.a).unit_of_work() as work:
            work.execute(delete(table))
        return
    with database.tenant(pair.a).unit_of_work() as work:
        changed = work.execute(update(table).values(tenant_id=table.tenant_id))
        assert changed.rowcount == 1  # type: ignore[attr-defined]
        assert work.execute(delete(table).where(table.tenant_id == pair.b)).rowcount == 0  # type: ignore[attr-defined]


def test_a_delete_without_a_condition_removes_the_tenants_rows_alone(database: Database, pair: Pair) -> None:
    with database.tenant(pair.a).unit_of_work() as work:
        work.execute(delete(DirtyBucket))
    with database.platform.read() as work:
        assert work.scalars(select(DirtyBucket.tenant_id)).all() == [pair.b]


def test_joins_and_subqueries_lead_to_no_other_tenant(database: Database, pair: Pair) -> None:
    other = aliased(AdapterVersion)
    with database.tenant(pair.a).read() as work:
        pairs = select(Adapter.tenant_id, AdapterVersion.tenant_id).join(AdapterVersion, text("1 = 1"))
        assert [tuple(row) for row in work.execute(pairs)] == [(pair.a, pair.a)]
        outer = select(Adapter.tenant_id, other.tenant_id).outerjoin(other, other.tenant_id == pair.b)
        assert [(mine, theirs is None) for mine, theirs in work.execute(outer)] == [(pair.a, True)]
        assert work.scalar(select(exists().where(Adapter.tenant_id == pair.b))) is False
        inner = select(Adapter.id).where(Adapter.tenant_id == pair.b).scalar_subquery()
        assert work.scalars(select(AdapterVersion).where(AdapterVersion.adapter_id.in_(inner))).all() == []
        listed = select(Adapter.tenant_id).union_all(select(AdapterVersion.tenant_id))
        assert set(work.scalars(listed)) == {pair.a}


def test_of_the_tenants_a_bound_session_sees_its_own(database: Database, pair: Pair) -> None:
    with database.tenant(pair.a).read() as work:
        assert work.scalars(select(Tenant.id)).all() == [pair.a]
        assert work.get(Tenant, pair.b) is None
    with pytest.raises(REFUSED), database.tenant(pair.a).unit_of_work() as work:
        work.add(Tenant(id="ten_ccc", slug="ccc", display_name="c", cache_salt=bytes(32), created_at=1))


def test_a_row_of_another_tenant_is_not_written(database: Database, pair: Pair) -> None:
    with pytest.raises(ForeignRow), database.tenant(pair.a).unit_of_work() as work:
        work.add(DirtyBucket(**a_bucket(pair.b, 3_600)))
    with pytest.raises(REFUSED), database.tenant(pair.a).unit_of_work() as work:
        work.execute(insert(DirtyBucket).values(**a_bucket(pair.b, 3_600)))
    with pytest.raises(REFUSED), database.tenant(pair.a).unit_of_work() as work:
        work.execute(insert(DirtyBucket), [a_bucket(pair.a, 3_600), a_bucket(pair.b, 3_600)])
    with pytest.raises(REFUSED), database.tenant(pair.a).unit_of_work() as work:
        work.execute(insert(DirtyBucket).values([a_bucket(pair.a, 3_600), a_bucket(pair.b, 3_600)]))
    with pytest.raises(ForeignRow), database.tenant(pair.a).unit_of_work() as work:
        work.scalars(select(DirtyBucket)).one().tenant_id = pair.b
    with pytest.raises(ForeignRow), database.tenant(pair.a).unit_of_work() as work:
        work.delete(a_bucket_of(database, pair.b))
    changed = a_bucket_of(database, pair.b)
    changed.marks = 7
    with pytest.raises(ForeignRow), database.tenant(pair.a).unit_of_work() as work:
        work.add(changed)
    with database.platform.read() as work:
        found = work.execute(select(DirtyBucket.tenant_id, DirtyBucket.bucket_start, DirtyBucket.marks))
        assert {tuple(row) for row in found} == {(pair.a, 0, 1), (pair.b, 0, 1)}


def test_a_row_of_another_tenant_is_not_written_by_statements_on_tables(database: Database, pair: Pair) -> None:
    """Whatever way a statement has to say whose its rows are."""
    table, mine, theirs = BUCKETS, a_bucket(pair.a, 3_600), a_bucket(pair.b, 3_600)
    renamed: dict[str, Any] = {name: bindparam(f"given_{name}") for name in theirs}
    on_conflict = {"index_elements": ["tenant_id", "granularity", "bucket_start"], "set_": {"tenant_id": pair.b}}
    upsert = postgresql.insert if database.engine.dialect.name == "postgresql" else sqlite.insert
    chosen = select(*(literal(value) for value in theirs.values()))
    for statement, rows in (
        (insert(table).values(theirs), None),
        (insert(table), theirs),
        (insert(table), [mine, theirs]),
        (insert(table).values([mine, theirs]), None),
        (insert(table).values(tuple(theirs.values())), None),
        (insert(table).values(renamed), {f"given_{name}": value for name, value in theirs.items()}),
        (insert(table).from_select(list(theirs), chosen), None),
        (insert(table).values({**mine, "tenant_id": select(literal(pair.b)).scalar_subquery()}), None),
        (upsert(table).values({**mine, "bucket_start": 0}).on_conflict_do_update(**on_conflict), None),  # type: ignore[arg-type]
    ):
        with pytest.raises(REFUSED), database.tenant(pair.a).unit_of_work() as work:
            work.execute(statement, rows)
    assert owners_of_buckets(database) == [pair.a, pair.b]


def test_no_row_is_given_away_by_a_statement(database: Database, pair: Pair) -> None:
    by_key = {"granularity": "hour", "bucket_start": 0}
    for statement, rows in (
        (update(DirtyBucket).values(tenant_id=pair.b), None),
        (update(DirtyBucket).values({DirtyBucket.tenant_id: pair.b}), None),
        (update(DirtyBucket).ordered_values((DirtyBucket.tenant_id, pair.b)), None),
        (update(DirtyBucket).values(tenant_id=select(literal(pair.b)).scalar_subquery()), None),
        (update(BUCKETS).values(tenant_id=pair.b).where(BUCKETS.c.tenant_id == pair.a), None),
        (update(BUCKETS).where(BUCKETS.c.tenant_id == pair.a), {"tenant_id": pair.b}),
        (update(DirtyBucket), [{"tenant_id": pair.b, **by_key, "marks": 9}]),
        (update(Tenant).values(id=pair.b), None),
    ):
        with pytest.raises((*REFUSED, StaleDataError)), database.tenant(pair.a).unit_of_work() as work:
            work.execute(statement, rows)
    with pytest.raises(REFUSED), database.tenant(pair.a).unit_of_work() as work:
        work.query(DirtyBucket).update({"tenant_id": pair.b})
    with database.platform.read() as work:
        assert {(row.tenant_id, row.marks) for row in work.scalars(select(DirtyBucket))} == {(pair.a, 1), (pair.b, 1)}


def test_no_tenant_is_made_by_a_statement(database: Database, pair: Pair) -> None:
    tenant = {"id": "ten_ccc", "slug": "ccc", "display_name": "c", "cache_salt": bytes(32), "created_at": 1}
    for table in (Tenant, Tenant.__table__):
        with pytest.raises(REFUSED), database.tenant(pair.a).unit_of_work() as work:
            work.execute(insert(table).values(tenant))  # type: ignore[arg-type]
        with pytest.raises(REFUSED), database.tenant(pair.a).unit_of_work() as work:
            work.execute(insert(table), [tenant])  # type: ignore[arg-type]


def test_bulk_calls_which_nothing_watches_are_the_platforms(database: Database, pair: Pair) -> None:
    row = a_bucket(pair.b, 3_600)
    table = inspect(DirtyBucket)
    with pytest.raises(ForeignRow), database.tenant(pair.a).unit_of_work() as work:
        work.bulk_save_objects([DirtyBucket(**row)])
    with pytest.raises(ForeignRow), database.tenant(pair.a).unit_of_work() as work:
        work.bulk_insert_mappings(table, [row])
    with pytest.raises(ForeignRow), database.tenant(pair.a).unit_of_work() as work:
        work.bulk_update_mappings(table, [{**row, "bucket_start": 0, "marks": 9}])
    with database.platform.unit_of_work() as work:
        work.bulk_insert_mappings(table, [row])
    assert owners_of_buckets(database) == [pair.a, pair.b, pair.b]


def test_statements_on_tables_write_what_the_tenant_owns(database: Database, pair: Pair) -> None:
    table, row = BUCKETS, a_bucket(pair.a, 3_600)
    chosen = select(*(literal(value) for value in a_bucket(pair.a, 7_200).values()))
    with database.tenant(pair.a).unit_of_work() as work:
        work.execute(insert(table).values(row))
        work.execute(insert(table).from_select(list(row), chosen))
        work.execute(update(table).values(tenant_id=table.c.tenant_id, marks=4).where(table.c.tenant_id == pair.a))
    assert owners_of_buckets(database) == [pair.a, pair.a, pair.a, pair.b]


BUCKETS = cast(SqlTable, DirtyBucket.__table__)


def a_bucket(tenant_id: str, start: int) -> dict[str, Any]:
    return {"tenant_id": tenant_id, "granularity": "hour", "bucket_start": start, "marks": 1}


def owners_of_buckets(database: Database) -> list[str]:
    with database.platform.read() as work:
        return sorted(work.scalars(select(DirtyBucket.tenant_id)))


def a_bucket_of(database: Database, tenant_id: str) -> DirtyBucket:
    with database.platform.read() as work:
        return work.scalars(select(DirtyBucket).where(DirtyBucket.tenant_id == tenant_id)).one()


def test_what_the_tenant_owns_is_written_by_statements_too(database: Database, pair: Pair) -> None:
    row = {"tenant_id": pair.a, "granularity": "hour", "marks": 1}
    with database.tenant(pair.a).unit_of_work() as work:
        work.execute(insert(DirtyBucket).values(bucket_start=3_600, **row))
        work.execute(insert(DirtyBucket), [{"bucket_start": 7_200, **row}, {"bucket_start": 10_800, **row}])
        work.execute(insert(DirtyBucket).values([{"bucket_start": 14_400, **row}, {"bucket_start": 18_000, **row}]))
        assert work.scalar(select(func.count()).select_from(DirtyBucket)) == 6


def test_two_tenants_one_after_the_other_get_their_own_criteria(database: Database, pair: Pair) -> None:
    """Statements are compiled once; the tenant is not compiled into them."""
    for tenant_id in (pair.a, pair.b, pair.a):
        with database.tenant(tenant_id).read() as work:
            assert work.scalars(select(Adapter.tenant_id)).all() == [tenant_id]


@pytest.mark.slow
def test_a_transaction_begins_with_one_message(postgres: Database, two: Pair) -> None:
    sent: list[str] = []
    event.listen(postgres.engine, "before_cursor_execute", lambda _c, _cursor, statement, *_: sent.append(statement))
    with postgres.tenant(two.a).read() as work:
        work.execute(text("SELECT 1"))
    with postgres.platform.unit_of_work() as work:
        work.execute(text("SELECT 2"))
    assert sent == [
        f"BEGIN READ ONLY; SET LOCAL ROLE lorikeet_app; SET LOCAL app.tenant_id = '{two.a}'",
        "SELECT 1",
        "BEGIN; SET LOCAL ROLE lorikeet_platform",
        "SELECT 2",
    ]


@pytest.mark.slow
def test_statements_stay_prepared_from_read_to_read(postgres: Database, two: Pair) -> None:
    for _ in range(8):
        with postgres.tenant(two.a).read() as work:
            work.scalars(select(Adapter.id)).all()
    with postgres.platform.read() as work:
        prepared = work.scalars(text("SELECT statement FROM pg_prepared_statements")).all()
    assert any("FROM adapters" in statement for statement in prepared)
    assert not any("BEGIN" in statement for statement in prepared)


@pytest.mark.slow
def test_a_connection_that_died_idle_is_replaced(postgres: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "PING_AFTER_S", 0.0)
    with postgres.platform.read() as work:
        pid = work.scalar(text("SELECT pg_backend_pid()"))
    other = Database(postgres.url)
    with other.engine.begin() as connection:
        connection.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
    other.close()
    with postgres.platform.read() as work:
        assert work.scalar(text("SELECT pg_backend_pid()")) != pid
