"""What the migrations make is what the tables say, and each step can be taken back."""

from __future__ import annotations

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import CheckConstraint, inspect, text
from sqlalchemy.exc import IntegrityError

from lorikeet_platform.db.migrate import downgrade, upgrade
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import Table


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


def test_up_down_up_ends_where_up_ends(empty_url: str) -> None:
    upgrade(empty_url)
    downgrade(empty_url, "base")
    database = Database(empty_url)
    assert set(inspect(database.engine).get_table_names()) <= {"alembic_version"}
    upgrade(empty_url)
    assert set(inspect(database.engine).get_table_names()) == {*Table.metadata.tables, "alembic_version"}
    database.close()


def test_rows_survive_the_step_to_weights_and_back(empty_url: str) -> None:
    upgrade(empty_url, "0001")
    database = Database(empty_url)
    with database.engine.begin() as work:
        work.execute(
            text("INSERT INTO tenants VALUES ('ten_1', 'harbour', 'Harbour', 'active', :salt, 1)"), {"salt": bytes(32)}
        )
    upgrade(empty_url, "0002")
    with database.engine.begin() as work:
        assert work.execute(text("SELECT slug, weight FROM tenants")).all() == [("harbour", 1.0)]
    with pytest.raises(IntegrityError), database.engine.begin() as work:
        work.execute(text("UPDATE tenants SET weight = 0"))
    downgrade(empty_url, "0001")
    assert "weight" not in {column["name"] for column in inspect(database.engine).get_columns("tenants")}
    with database.engine.begin() as work:
        assert work.execute(text("SELECT slug FROM tenants")).all() == [("harbour",)]
    database.close()


def test_an_upgrade_of_the_newest_database_changes_nothing(database: Database) -> None:
    upgrade(database.engine.url.render_as_string(hide_password=False))
    with database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Table.metadata) == []


def test_every_table_of_a_tenant_has_the_tenant_first_in_its_key() -> None:
    platform_wide = {"tenants", "owner_tokens", "sessions"}
    for table in Table.metadata.sorted_tables:
        if table.name not in platform_wide:
            assert next(iter(table.primary_key.columns)).name == "tenant_id", table.name


def test_every_reference_between_tables_of_tenants_names_the_tenant() -> None:
    for table in Table.metadata.sorted_tables:
        for key in table.foreign_key_constraints:
            if key.referred_table.name != "tenants":
                assert key.column_keys[0] == "tenant_id", f"{table.name}: {key.column_keys}"
