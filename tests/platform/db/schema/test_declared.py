"""What the migrations make is what the tables say, and what every table of a tenant has in common."""

from __future__ import annotations

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import CheckConstraint, ForeignKeyConstraint, inspect

from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import Table, tenant_tables

PLATFORM_WIDE = {
    "tenants": "they are the tenants",
    "plans": "shared by tenants",
    "plan_limits": "of the plans",
    "owner_tokens": "of the installation's owner",
    "sessions": "of the installation's owner",
    "gateways": "serve every tenant",
    "chores": "done for every tenant",
}
# A tenant is no part of its key, because the platform's own events have none.
KEYED_WITHOUT_TENANT = {"audit_events"}
# Unique for the whole server, and made by it: nobody learns from a refusal what another tenant chose.
MADE_BY_THE_SERVER = {("api_keys", "id"), ("api_keys", "public_id"), ("jobs", "id"), ("usage_records", "request_id")}


def test_a_migrated_database_is_what_the_tables_declare(database: Database) -> None:
    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, Table.metadata) == []


def test_every_declared_check_is_in_the_database(database: Database) -> None:
    inspector = inspect(database.engine)
    for table in Table.metadata.sorted_tables:
        declared = {str(item.name) for item in table.constraints if isinstance(item, CheckConstraint)}
        found = {item["name"] for item in inspector.get_check_constraints(table.name)}
        assert found == declared, table.name


def test_every_table_is_of_tenants_or_says_why_not() -> None:
    assert set(Table.metadata.tables) == tenant_tables() | set(PLATFORM_WIDE)
    assert not tenant_tables() & set(PLATFORM_WIDE)


def test_r_4_every_table_of_tenants_has_the_tenant_first_in_its_key() -> None:
    for name in tenant_tables() - KEYED_WITHOUT_TENANT:
        first = next(iter(Table.metadata.tables[name].primary_key.columns))
        assert (first.name, first.nullable) == ("tenant_id", False), name


def test_r_4_every_reference_between_tables_of_tenants_names_the_tenant() -> None:
    for name in tenant_tables():
        for key in Table.metadata.tables[name].foreign_key_constraints:
            if key.referred_table.name in tenant_tables():
                assert _pairs(key)["tenant_id"] == "tenant_id", f"{name}: {key.column_keys}"
                assert len(key.elements) >= 2, f"{name}: {key.column_keys}"


def test_r_5_what_a_tenant_chooses_is_unique_within_the_tenant_only(database: Database) -> None:
    inspector = inspect(database.engine)
    for name in tenant_tables() - KEYED_WITHOUT_TENANT:
        unique = [list(item["column_names"]) for item in inspector.get_indexes(name) if item["unique"]]
        unique += [list(item["column_names"]) for item in inspector.get_unique_constraints(name)]
        for columns in unique:
            is_ours = len(columns) == 1 and (name, columns[0]) in MADE_BY_THE_SERVER
            assert is_ours or columns[0] == "tenant_id", f"{name}: {columns}"


def _pairs(key: ForeignKeyConstraint) -> dict[str, str]:
    return {element.parent.name: element.column.name for element in key.elements}
