"""What the migrations make is what the tables say, and each step can be taken back."""

from __future__ import annotations

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import CheckConstraint, inspect, select, text
from sqlalchemy.exc import IntegrityError

from lorikeet_platform.db.migrate import downgrade, upgrade
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import AliasChange, Table


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


BEFORE = (
    "INSERT INTO tenants (id, slug, display_name, status, weight, cache_salt, created_at)"
    " VALUES ('ten_1', 'harbour', 'Harbour', 'active', 1, :salt, 1)",
    "INSERT INTO api_keys (tenant_id, id, public_id, secret_mac, pepper_version, name, hint, status, created_at)"
    " VALUES ('ten_1', 'key_1', 'public', :salt, 1, 'first', 'abcd', 'active', 1)",
    "INSERT INTO adapters (tenant_id, id, name, base_model, next_version, created_at)"
    " VALUES ('ten_1', 'adp_1', 'pirate', 'tiny', 3, 1)",
    "INSERT INTO adapter_versions (tenant_id, id, adapter_id, number, state, state_rev, live_when_ready, digest, bytes,"
    " target_modules, warnings, created_by, created_at, ready_at)"
    " VALUES ('ten_1', 'ver_1', 'adp_1', 1, 'ready', 1, :no, 'd1', 10, '[]', '[]', 'key_1', 1, 2),"
    " ('ten_1', 'ver_2', 'adp_1', 2, 'validating', 0, :yes, NULL, 10, '[]', '[]', 'key_1', 1, NULL)",
    "INSERT INTO uploads (tenant_id, id, adapter_name, filename, sha256, length, received, state, created_by,"
    " created_at, expires_at)"
    " VALUES ('ten_1', 'upl_1', 'pirate', 'adapter_config.json', 'a', 7, 7, 'sealed', 'key_1', 1, 9)",
    "INSERT INTO upload_slices (tenant_id, upload_id, begin, bytes, sha256, slice_id, stored_at)"
    " VALUES ('ten_1', 'upl_1', 0, 7, 'a', 'sli_1', 1)",
    "INSERT INTO version_files (tenant_id, version_id, filename, sha256, bytes, upload_id)"
    " VALUES ('ten_1', 'ver_2', 'adapter_config.json', 'a', 7, 'upl_1')",
    "INSERT INTO aliases (tenant_id, adapter_id, alias, version_id, revision, updated_at)"
    " VALUES ('ten_1', 'adp_1', 'live', 'ver_1', 4, 5)",
    "INSERT INTO jobs (tenant_id, id, kind, version_id, state, attempt, max_attempts, run_after, wake_at, created_at)"
    " VALUES ('ten_1', 'job_1', 'validate', 'ver_2', 'queued', 0, 5, 1, 1, 1)",
    "INSERT INTO usage_records (tenant_id, request_id, key_id, route, base_model, adapter_id, version_id, stream,"
    " state, prompt_tokens, completion_tokens, cached_tokens, admitted_at)"
    " VALUES ('ten_1', 'req_1', 'key_1', '/v1/completions', 'tiny', 'adp_1', 'ver_1', :no, 'open', 3, 2, 1, 8)",
)
AFTER = (
    "UPDATE adapter_versions SET certificate = '{}' WHERE id = 'ver_1'",
    "INSERT INTO adapters (tenant_id, id, name, base_model, next_version, status, created_at, deleted_at)"
    " VALUES ('ten_1', 'adp_0', 'pirate', 'tiny', 2, 'deleted', 1, 2)",
    "INSERT INTO adapter_versions (tenant_id, id, adapter_id, number, state, state_rev, bytes, target_modules,"
    " warnings, created_by, created_at) VALUES ('ten_1', 'ver_3', 'adp_0', 1, 'purged', 3, 10, '[]', '[]', 'key_1', 1)",
    "INSERT INTO alias_history (tenant_id, adapter_id, alias, revision, targets, sticky, actor, at)"
    " VALUES ('ten_1', 'adp_0', 'live', 2, '[]', 'none', 'key_1', 6)",
    "INSERT INTO uploads (tenant_id, id, adapter_name, filename, sha256, length, received, state, created_by,"
    " created_at, expires_at)"
    " VALUES ('ten_1', 'upl_2', 'pirate', 'adapter_model.safetensors.index.json', 'b', 1, 1, 'open', 'key_1', 1, 9)",
    "INSERT INTO upload_slices (tenant_id, upload_id, begin, bytes, sha256, slice_id, stored_at)"
    " VALUES ('ten_1', 'upl_2', 0, 1, 'b', 'sli_2', 1)",
    "INSERT INTO jobs (tenant_id, id, kind, version_id, state, attempt, max_attempts, run_after, wake_at, created_at)"
    " VALUES ('ten_1', 'job_2', 'purge', 'ver_3', 'queued', 0, 5, 1, 1, 1)",
    "UPDATE usage_records SET first_token_at = 9",
)


def test_rows_survive_the_step_to_versions_with_an_end_and_back(empty_url: str) -> None:
    upgrade(empty_url, "0002")
    database = Database(empty_url)

    def run(statements: tuple[str, ...]) -> None:
        with database.engine.begin() as work:
            for statement in statements:
                values = {"salt": bytes(32), "yes": True, "no": False}
                work.execute(
                    text(statement), {name: value for name, value in values.items() if f":{name}" in statement}
                )

    def rows(query: str) -> list[tuple[object, ...]]:
        with database.engine.begin() as work:
            return [tuple(row) for row in work.execute(text(query))]

    def plain() -> dict[str, list[tuple[object, ...]]]:
        """What both schemas can say."""
        return {
            "adapters": rows("SELECT id, name, next_version FROM adapters WHERE id <> 'adp_0' ORDER BY id"),
            "versions": rows(
                "SELECT id, number, state, digest, bytes, ready_at FROM adapter_versions WHERE id <> 'ver_3'"
                " ORDER BY id"
            ),
            "aliases": rows("SELECT adapter_id, alias, revision, updated_at FROM aliases"),
            "uploads": rows("SELECT id, filename, length, received, state FROM uploads WHERE id <> 'upl_2'"),
            "slices": rows("SELECT upload_id, begin, bytes FROM upload_slices WHERE upload_id <> 'upl_2'"),
            "files": rows("SELECT version_id, filename, sha256, upload_id FROM version_files"),
            "jobs": rows("SELECT id, kind, version_id, state FROM jobs WHERE id <> 'job_2'"),
            "usage": rows(
                "SELECT request_id, version_id, prompt_tokens, cached_tokens, admitted_at FROM usage_records"
            ),
        }

    run(BEFORE)
    before = plain()
    upgrade(empty_url, "0003")
    assert plain() == before
    assert rows("SELECT id, alias_when_ready FROM adapter_versions ORDER BY id") == [("ver_1", None), ("ver_2", "live")]
    assert rows("SELECT adapter_id, alias, version_id, weight FROM alias_targets") == [("adp_1", "live", "ver_1", 100)]
    assert rows("SELECT sticky, guard, updated_by FROM aliases") == [("none", None, "system")]
    assert rows("SELECT status, deleted_at FROM adapters") == [("active", None)]
    with database.platform.read() as work:
        [line] = work.scalars(select(AliasChange)).all()
    assert (line.revision, line.actor, line.reason, line.at) == (4, "system", None, 5)
    assert line.targets == [{"version_id": "ver_1", "number": 1, "weight": 100}]
    run(AFTER)
    downgrade(empty_url, "0002")
    assert plain() == before
    assert rows("SELECT version_id FROM aliases") == [("ver_1",)]
    assert rows("SELECT id FROM adapter_versions WHERE live_when_ready") == [("ver_2",)]
    assert rows("SELECT id, name FROM adapters WHERE id = 'adp_0'") == [("adp_0", "adp_0")]
    assert rows("SELECT state FROM adapter_versions WHERE id = 'ver_3'") == [("failed_internal",)]
    assert rows("SELECT id FROM jobs") == [("job_1",)]
    upgrade(empty_url)
    assert plain() == before
    assert rows("SELECT adapter_id, version_id FROM alias_targets") == [("adp_1", "ver_1")]
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
