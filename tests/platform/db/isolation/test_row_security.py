"""Raw SQL by an installation's own logins, on Postgres: what the policies let through (N-8)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import ProgrammingError

from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import Table, Tenant, tenant_tables
from tests.platform.db.isolation.conftest import Logins, Pair

pytestmark = pytest.mark.slow
OWNED = sorted(tenant_tables())
# What is not the tenant's to do with its own rows; of the tables in COUNTED, some columns only can be changed.
NOT_ADDED = {"tenant_limits", "usage_costs"}
COUNTED = {"budget_counters", "usage_records"}
NOT_CHANGED = {"audit_events", "tenant_limits", "usage_costs"}
DENIED, POLICY = "permission denied", "row-level security policy"
NOT_REMOVED = {"api_keys", "audit_events", "budget_counters", "tenant_limits", "usage_costs", "usage_records"}


@contextmanager
def bound_to(engine: Engine, tenant_id: str) -> Iterator[Connection]:
    """A transaction as the application's, but for its SQL, which is whatever a test likes; nothing is kept."""
    with engine.connect() as work:
        work.execute(text("SELECT set_config('app.tenant_id', :tenant, true)"), {"tenant": tenant_id})
        yield work
        work.rollback()


def test_n_8_every_table_of_tenants_has_forced_row_security_and_both_policies(postgres: Database) -> None:
    tables = {*OWNED, "tenants"}
    with postgres.engine.begin() as work:
        secured = work.execute(
            text("SELECT relname FROM pg_class WHERE relkind = 'r' AND relrowsecurity AND relforcerowsecurity")
        )
        assert set(secured.scalars()) == tables
        policies = work.execute(
            text("SELECT tablename, policyname, roles::text, cmd, qual, with_check FROM pg_policies")
        )
        found = {(row.tablename, row.policyname): row for row in policies}
    assert set(found) == {(table, name) for table in tables for name in ("own_tenant", "all_tenants")}
    for (table, name), row in found.items():
        column = "id" if table == "tenants" else "tenant_id"
        mine = f"(({column})::text = NULLIF(current_setting('app.tenant_id'::text, true), ''::text))"
        expected = ("{lorikeet_app}", mine) if name == "own_tenant" else ("{lorikeet_platform}", "true")
        assert (row.roles, row.qual) == expected
        assert (row.cmd, row.with_check) == ("ALL", row.qual)


def test_n_8_without_a_tenant_the_application_sees_no_row_of_any_table(logins: Logins, two: Pair) -> None:
    for role in ("login", "lorikeet_app"):
        with logins.app.begin() as work:
            if role != "login":
                work.execute(text(f"SET LOCAL ROLE {role}"))
            for table in (*OWNED, "tenants"):
                assert work.scalar(text(f"SELECT count(*) FROM {table}")) == 0, table


def test_n_8_with_a_tenant_the_application_sees_its_rows_alone(logins: Logins, two: Pair) -> None:
    for tenant_id in (two.a, two.b):
        with bound_to(logins.app, tenant_id) as work:
            for table in OWNED:
                assert work.scalars(text(f"SELECT tenant_id FROM {table}")).all() == [tenant_id], table
            assert work.scalars(text("SELECT id FROM tenants")).all() == [tenant_id]


@pytest.mark.parametrize("table", OWNED)
def test_n_8_no_row_of_another_tenant_can_be_written(logins: Logins, two: Pair, table: str) -> None:
    with logins.superuser.begin() as work:
        row = work.scalar(
            text(f"SELECT to_jsonb({table})::text FROM {table} WHERE tenant_id = :tenant"), {"tenant": two.b}
        )
    refused = DENIED if table in NOT_ADDED else POLICY
    with bound_to(logins.app, two.a) as work, pytest.raises(ProgrammingError, match=refused):
        work.execute(
            text(f"INSERT INTO {table} SELECT * FROM jsonb_populate_record(NULL::{table}, CAST(:row AS jsonb))"),
            {"row": row},
        )
    foreign = {"tenant": two.b}
    refused = DENIED if table in COUNTED | NOT_CHANGED else POLICY
    with bound_to(logins.app, two.a) as work, pytest.raises(ProgrammingError, match=refused):
        work.execute(text(f"UPDATE {table} SET tenant_id = :tenant"), foreign)
    if table not in COUNTED | NOT_CHANGED:
        with bound_to(logins.app, two.a) as work:
            theirs = text(f"UPDATE {table} SET tenant_id = :tenant WHERE tenant_id = :tenant")
            assert work.execute(theirs, foreign).rowcount == 0
            assert work.execute(text(f"UPDATE {table} SET tenant_id = tenant_id")).rowcount == 1
    if table not in NOT_REMOVED:
        with bound_to(logins.app, two.a) as work:
            assert work.execute(text(f"DELETE FROM {table} WHERE tenant_id = :tenant"), foreign).rowcount == 0


@pytest.mark.parametrize(
    "statement",
    [
        *(f"DELETE FROM {table}" for table in sorted(NOT_REMOVED)),
        *(f"UPDATE tenants SET {column} = {column}" for column in ("weight", "plan_id", "status", "keys_make_keys")),
        *(f"UPDATE usage_records SET {column} = {column}" for column in ("subject_id", "est_tokens", "period_start")),
        "UPDATE budget_counters SET period_start = 0",
        "UPDATE tenant_limits SET value = 1",
        "INSERT INTO tenant_limits SELECT * FROM tenant_limits",
    ],
)
def test_n_8_what_a_tenant_is_held_by_is_not_changed_in_its_name(logins: Logins, two: Pair, statement: str) -> None:
    with bound_to(logins.app, two.a) as work, pytest.raises(ProgrammingError, match=DENIED):
        work.execute(text(statement))


def test_a_tenants_transactions_lock_its_row_and_settle_its_use(separate: Database, two: Pair) -> None:
    with separate.tenant(two.a).unit_of_work() as work:
        assert work.get_one(Tenant, two.a, with_for_update={"key_share": True}).id == two.a
        for statement in ("UPDATE budget_counters SET settled = 1", "UPDATE usage_records SET first_token_at = 1"):
            assert work.execute(text(statement)).rowcount == 1  # type: ignore[attr-defined]


def test_n_8_the_application_makes_and_removes_no_tenants(logins: Logins, two: Pair) -> None:
    for statement in (
        "DELETE FROM tenants",
        "INSERT INTO tenants SELECT * FROM tenants",
        "SELECT * FROM sessions",
        "SELECT * FROM owner_tokens",
        "UPDATE plan_limits SET value = 1",
        "TRUNCATE usage_records",
    ):
        with bound_to(logins.app, two.a) as work, pytest.raises(ProgrammingError, match="permission denied"):
            work.execute(text(statement))


@pytest.mark.parametrize(
    "statement",
    [
        "SET ROLE lorikeet_platform",
        "SET LOCAL ROLE lorikeet_platform",
        "SET SESSION AUTHORIZATION lorikeet_platform",
        "SELECT set_config('role', 'lorikeet_platform', true)",
        "ALTER TABLE adapters DISABLE ROW LEVEL SECURITY",
        "ALTER TABLE adapters NO FORCE ROW LEVEL SECURITY",
        "DROP POLICY own_tenant ON adapters",
        "CREATE POLICY everything ON adapters USING (true)",
        "GRANT lorikeet_platform TO CURRENT_USER",
        "ALTER ROLE CURRENT_USER BYPASSRLS",
        "CREATE ROLE another IN ROLE lorikeet_platform",
        "CREATE TABLE mine (id int)",
    ],
)
def test_n_8_the_applications_login_cannot_become_more_than_it_is(logins: Logins, two: Pair, statement: str) -> None:
    with (
        bound_to(logins.app, two.a) as work,
        pytest.raises(ProgrammingError, match=r"permission denied|must be owner|must have"),
    ):
        work.execute(text(statement))


def test_n_8_going_back_to_the_login_or_turning_row_security_off_shows_nothing_more(logins: Logins, two: Pair) -> None:
    with bound_to(logins.app, two.a) as work:
        work.execute(text("SET LOCAL ROLE lorikeet_app"))
        work.execute(text("RESET ROLE"))
        assert work.scalars(text("SELECT tenant_id FROM adapters")).all() == [two.a]
        work.execute(text("SET LOCAL row_security = off"))
        with pytest.raises(ProgrammingError, match="affected by row-level security"):
            work.execute(text("SELECT tenant_id FROM adapters"))


def test_n_8_neither_role_owns_anything_or_bypasses_anything(postgres: Database) -> None:
    with postgres.engine.begin() as work:
        roles = work.execute(
            text(
                "SELECT rolname, rolcanlogin OR rolsuper OR rolbypassrls OR rolcreaterole OR rolcreatedb,"
                " (SELECT count(*) FROM pg_class WHERE relowner = pg_roles.oid)"
                " FROM pg_roles WHERE rolname IN ('lorikeet_app', 'lorikeet_platform') ORDER BY 1"
            )
        ).all()
    assert [tuple(row) for row in roles] == [("lorikeet_app", False, 0), ("lorikeet_platform", False, 0)]


def test_the_platforms_login_sees_every_tenant_and_changes_no_schema(logins: Logins, two: Pair) -> None:
    with logins.platform.begin() as work:
        for table in OWNED:
            assert set(work.scalars(text(f"SELECT tenant_id FROM {table}"))) == {two.a, two.b}, table
        for name in Table.metadata.tables:
            work.execute(text(f"SELECT count(*) FROM {name}"))
    for statement in ("ALTER TABLE adapters DISABLE ROW LEVEL SECURITY", "DROP TABLE adapters"):
        with logins.platform.begin() as work, pytest.raises(ProgrammingError, match="must be owner"):
            work.execute(text(statement))


def test_a_pooled_connection_carries_no_tenant_over(separate: Database, two: Pair) -> None:
    standing = text("SELECT pg_backend_pid(), current_user, current_setting('app.tenant_id', true)")
    seen: list[tuple[int, str, str | None]] = []

    def look() -> None:
        with separate.engine.connect() as work:
            seen.append(tuple(work.execute(standing).one()))

    look()
    with separate.tenant(two.a).unit_of_work() as work:
        assert work.execute(standing).one()[1:] == ("lorikeet_app", two.a)
    look()
    with pytest.raises(ProgrammingError), separate.tenant(two.a).unit_of_work() as work:
        work.execute(text("SELECT no_such_thing"))
    look()
    with separate.tenant(two.b).read() as work:
        assert work.scalars(text("SELECT tenant_id FROM adapters")).all() == [two.b]
    look()
    assert len({pid for pid, _, _ in seen}) == 1
    assert {(user.startswith("login_"), tenant or "") for _, user, tenant in seen} == {(True, "")}


def test_an_installation_with_separate_logins_works_for_tenants_and_for_the_platform(
    separate: Database, two: Pair
) -> None:
    with separate.platform.read() as work:
        assert set(work.scalars(text("SELECT tenant_id FROM adapters"))) == {two.a, two.b}
        assert work.scalar(text("SELECT current_user")) == "lorikeet_platform"
    with separate.tenant(two.a).unit_of_work() as work:
        assert work.execute(text("UPDATE adapters SET description = 'mine'")).rowcount == 1  # type: ignore[attr-defined]
    assert separate.is_reachable()


def test_what_is_no_id_of_a_tenant_begins_no_transaction(postgres: Database) -> None:
    for name in ("ten_1'; SET ROLE postgres; --", "", "ten_" + "1" * 40, "TEN_1", "ten_1\n"):
        with pytest.raises(ValueError, match="not the id of a tenant"), postgres.tenant(name).read() as work:
            work.execute(text("SELECT 1"))
