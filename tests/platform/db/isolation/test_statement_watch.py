"""The watch over all tests' statements refuses what it is there to refuse."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection, select, text

from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import Adapter, Plan
from tests.platform.db.isolation.conftest import Pair
from tests.support import statement_watch
from tests.support.statement_watch import UnboundStatement, tables_in, watched_statements


@pytest.fixture
def whose_rows() -> None:
    """These tests provoke it; each watches for itself."""


def test_a_bound_statement_and_the_platforms_pass(database: Database, pair: Pair) -> None:
    with watched_statements() as refused:
        with database.tenant(pair.a).read() as work:
            assert work.scalars(select(Adapter.tenant_id)).all() == [pair.a]
        with database.platform.read() as work:
            assert len(work.scalars(select(Adapter.tenant_id)).all()) == 2
    assert refused == []


def test_raw_sql_of_a_bound_session_must_name_the_tenant_on_sqlite(db: Database) -> None:
    with watched_statements() as refused, db.tenant("ten_1").read() as work:
        with pytest.raises(UnboundStatement, match="not among the parameters"):
            work.execute(text("SELECT * FROM adapters"))
        work.execute(text("SELECT * FROM adapters WHERE tenant_id = :tenant"), {"tenant": "ten_1"})
        work.scalars(select(Plan)).all()
        with pytest.raises(UnboundStatement):
            work.execute(select(Adapter.__table__))
    assert len(refused) == 2


@pytest.mark.slow
def test_a_bound_transaction_that_lost_its_tenant_or_role_is_refused(postgres: Database) -> None:
    with watched_statements(), postgres.tenant("ten_1").unit_of_work() as work:
        work.execute(text("SET LOCAL app.tenant_id = 'ten_2'"))
        with pytest.raises(UnboundStatement, match="the tenant is 'ten_2'"):
            work.scalars(select(Adapter)).all()
    with watched_statements(), postgres.platform.unit_of_work() as work:
        work.execute(text("RESET ROLE"))
        with pytest.raises(UnboundStatement, match="the role is"):
            work.scalars(select(Adapter)).all()


def test_a_connection_without_a_scope_is_for_tests_and_migrations_alone(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(connection: Connection) -> None:
        connection.execute(text("SELECT * FROM adapters")).all()

    with watched_statements() as refused, database.engine.connect() as connection:
        look(connection)
        monkeypatch.setattr(statement_watch, "FREE", ())
        with pytest.raises(UnboundStatement, match="no scope"):
            look(connection)
    assert len(refused) == 1


def test_tables_are_found_by_their_whole_names() -> None:
    assert tables_in("SELECT 1 FROM adapter_versions AS v JOIN plans ON true") == {"adapter_versions"}
    assert tables_in('UPDATE "jobs" SET x = 1') == {"jobs"}
    assert tables_in("SELECT my_jobs FROM chores") == frozenset()
