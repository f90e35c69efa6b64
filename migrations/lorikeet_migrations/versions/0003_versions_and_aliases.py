"""Versions get a certificate and an end, aliases several targets and a history, uploads any file of an adapter.

SQLite cannot change a constraint in place, so Alembic makes those tables anew there and copies the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

OLD_STATES = "state IN ('validating', 'ready', 'rejected', 'failed_internal')"
NEW_STATES = "state IN ('validating', 'ready', 'rejected', 'failed_internal', 'retired', 'quarantined', 'purged')"
OLD_FILES = "filename IN ('adapter_config.json', 'adapter_model.safetensors')"
NEW_ADAPTER_CHECKS = {
    "status": "status IN ('active', 'deleted')",
    "deleted_at": "status <> 'deleted' OR deleted_at IS NOT NULL",
}
NEW_ALIAS_CHECKS = {"sticky": "sticky IN ('none', 'user')", "revision": "revision >= 1"}


def upgrade() -> None:
    _rebuild(
        "adapters",
        added=NEW_ADAPTER_CHECKS,
        columns=[
            sa.Column("status", sa.String(length=16), nullable=False, server_default=sa.text("'active'")),
            sa.Column("deleted_at", sa.BigInteger(), nullable=True),
        ],
        dropped_unique="uq_adapters_tenant_id_name",
    )
    active = sa.text("status = 'active'")
    op.create_index(
        "uq_adapters_active_name",
        "adapters",
        ["tenant_id", "name"],
        unique=True,
        sqlite_where=active,
        postgresql_where=active,
    )
    _rebuild(
        "adapter_versions",
        dropped=["state"],
        added={"state": NEW_STATES},
        columns=[
            sa.Column("certificate", sa.JSON(none_as_null=True), nullable=True),
            sa.Column("retired_at", sa.BigInteger(), nullable=True),
            sa.Column("retired_by", sa.String(length=64), nullable=True),
            sa.Column("retire_reason", sa.String(length=500), nullable=True),
            sa.Column("purge_after", sa.BigInteger(), nullable=True),
            sa.Column("alias_when_ready", sa.String(length=64), nullable=True),
        ],
    )
    op.execute(sa.text("UPDATE adapter_versions SET alias_when_ready = 'live' WHERE live_when_ready"))
    op.drop_column("adapter_versions", "live_when_ready")
    _rebuild("uploads", dropped=["filename"])
    _rebuild("version_files", dropped=["filename"])
    _rebuild(
        "jobs",
        dropped=["kind", "validate_has_version"],
        added={"kind": "kind IN ('validate', 'retire', 'purge')", "has_version": "version_id IS NOT NULL"},
    )
    op.add_column("usage_records", sa.Column("first_token_at", sa.BigInteger(), nullable=True))
    op.create_index("ix_usage_records_version", "usage_records", ["tenant_id", "version_id", "admitted_at"])
    _create_blob_deletions()
    _create_alias_history()
    _spread_aliases()


def downgrade() -> None:
    _gather_aliases()
    op.drop_table("alias_history")
    op.drop_index("ix_blob_deletions_over_at", "blob_deletions")
    op.drop_table("blob_deletions")
    op.drop_index("ix_usage_records_version", "usage_records")
    op.drop_column("usage_records", "first_token_at")
    op.execute("DELETE FROM jobs WHERE kind <> 'validate'")
    _rebuild(
        "jobs",
        dropped=["kind", "has_version"],
        added={"kind": "kind IN ('validate')", "validate_has_version": "kind <> 'validate' OR version_id IS NOT NULL"},
    )
    # What the older schema has no words for: files of sharded versions go, and with them the versions' way back.
    op.execute(f"DELETE FROM version_files WHERE NOT ({OLD_FILES})")
    _rebuild("version_files", added={"filename": OLD_FILES})
    op.execute(f"DELETE FROM upload_slices WHERE upload_id IN (SELECT id FROM uploads WHERE NOT ({OLD_FILES}))")
    op.execute(f"DELETE FROM uploads WHERE NOT ({OLD_FILES})")
    _rebuild("uploads", added={"filename": OLD_FILES})
    op.execute(
        "UPDATE adapter_versions SET state = 'failed_internal' WHERE state IN ('retired', 'quarantined', 'purged')"
    )
    _rebuild(
        "adapter_versions",
        dropped=["state"],
        added={"state": OLD_STATES},
        columns=[sa.Column("live_when_ready", sa.Boolean(), nullable=False, server_default=sa.false())],
        dropped_columns=["certificate", "retired_at", "retired_by", "retire_reason", "purge_after"],
    )
    op.execute(
        sa.text(
            "UPDATE adapter_versions SET live_when_ready = (alias_when_ready = 'live')"
            " WHERE alias_when_ready IS NOT NULL"
        )
    )
    op.drop_column("adapter_versions", "alias_when_ready")
    op.drop_index("uq_adapters_active_name", "adapters")
    op.execute("UPDATE adapters SET name = id WHERE status = 'deleted'")
    _rebuild(
        "adapters",
        dropped=list(NEW_ADAPTER_CHECKS),
        dropped_columns=["status", "deleted_at"],
        added_unique=("uq_adapters_tenant_id_name", ["tenant_id", "name"]),
    )


def _spread_aliases() -> None:
    """What an alias pointed at becomes its one target, and its first history."""
    op.create_table(
        "alias_targets",
        sa.Column("tenant_id", sa.String(length=32), nullable=False),
        sa.Column("adapter_id", sa.String(length=32), nullable=False),
        sa.Column("alias", sa.String(length=64), nullable=False),
        sa.Column("version_id", sa.String(length=32), nullable=False),
        sa.Column("weight", sa.Integer(), nullable=False),
        sa.CheckConstraint("weight >= 1 AND weight <= 100", name=op.f("ck_alias_targets_weight")),
        sa.ForeignKeyConstraint(
            ["tenant_id", "adapter_id", "alias"],
            ["aliases.tenant_id", "aliases.adapter_id", "aliases.alias"],
            name=op.f("fk_alias_targets_tenant_id_adapter_id_alias"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id", "adapter_id", "version_id"],
            ["adapter_versions.tenant_id", "adapter_versions.adapter_id", "adapter_versions.id"],
            name=op.f("fk_alias_targets_tenant_id_adapter_id_version_id"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "adapter_id", "alias", "version_id", name=op.f("pk_alias_targets")),
    )
    op.execute(
        "INSERT INTO alias_targets (tenant_id, adapter_id, alias, version_id, weight)"
        " SELECT tenant_id, adapter_id, alias, version_id, 100 FROM aliases"
    )
    _record_what_aliases_point_at()
    _rebuild(
        "aliases",
        added=NEW_ALIAS_CHECKS,
        columns=[
            sa.Column("sticky", sa.String(length=8), nullable=False, server_default=sa.text("'none'")),
            sa.Column("guard", sa.JSON(none_as_null=True), nullable=True),
            sa.Column("updated_by", sa.String(length=64), nullable=False, server_default=sa.text("'system'")),
        ],
        dropped_columns=["version_id"],
        dropped_reference="fk_aliases_tenant_id_adapter_id_version_id",
    )


def _gather_aliases() -> None:
    """An alias points at the one target that gets most requests; the first of them by id where two get as many."""
    _rebuild(
        "aliases",
        dropped=list(NEW_ALIAS_CHECKS),
        columns=[sa.Column("version_id", sa.String(length=32), nullable=True)],
        dropped_columns=["sticky", "guard", "updated_by"],
    )
    op.execute(
        "UPDATE aliases SET version_id = (SELECT version_id FROM alias_targets AS t"
        " WHERE t.tenant_id = aliases.tenant_id AND t.adapter_id = aliases.adapter_id AND t.alias = aliases.alias"
        " ORDER BY weight DESC, version_id LIMIT 1)"
    )
    op.drop_table("alias_targets")
    op.execute("DELETE FROM aliases WHERE version_id IS NULL")
    with op.batch_alter_table("aliases") as batch:
        batch.alter_column("version_id", existing_type=sa.String(length=32), nullable=False)
        batch.create_foreign_key(
            op.f("fk_aliases_tenant_id_adapter_id_version_id"),
            "adapter_versions",
            ["tenant_id", "adapter_id", "version_id"],
            ["tenant_id", "adapter_id", "id"],
        )


def _create_blob_deletions() -> None:
    op.create_table(
        "blob_deletions",
        sa.Column("tenant_id", sa.String(length=32), nullable=False),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("over_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_blob_deletions_tenant_id")),
        sa.PrimaryKeyConstraint("tenant_id", "key", "id", name=op.f("pk_blob_deletions")),
    )
    op.create_index("ix_blob_deletions_over_at", "blob_deletions", ["over_at"])


def _create_alias_history() -> None:
    op.create_table(
        "alias_history",
        sa.Column("tenant_id", sa.String(length=32), nullable=False),
        sa.Column("adapter_id", sa.String(length=32), nullable=False),
        sa.Column("alias", sa.String(length=64), nullable=False),
        sa.Column("revision", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("targets", sa.JSON(), nullable=False),
        sa.Column("sticky", sa.String(length=8), nullable=False),
        sa.Column("guard", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("actor", sa.String(length=64), nullable=False),
        sa.Column("reason", sa.String(length=500), nullable=True),
        sa.Column("previous", sa.Integer(), nullable=True),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id", "adapter_id"],
            ["adapters.tenant_id", "adapters.id"],
            name=op.f("fk_alias_history_tenant_id_adapter_id"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "adapter_id", "alias", "revision", name=op.f("pk_alias_history")),
    )


def _record_what_aliases_point_at() -> None:
    connection = op.get_bind()
    rows = connection.execute(
        sa.text(
            "SELECT a.tenant_id, a.adapter_id, a.alias, a.revision, a.updated_at, v.id, v.number FROM aliases AS a"
            " JOIN adapter_versions AS v ON v.tenant_id = a.tenant_id AND v.id = a.version_id"
        )
    ).all()
    history = sa.table(
        "alias_history",
        *(sa.column(name) for name in ("tenant_id", "adapter_id", "alias", "revision", "sticky", "actor", "at")),
        sa.column("targets", sa.JSON()),
    )
    for tenant_id, adapter_id, alias, revised, at, version_id, number in rows:
        connection.execute(
            history.insert().values(
                tenant_id=tenant_id,
                adapter_id=adapter_id,
                alias=alias,
                revision=revised,
                targets=[{"version_id": version_id, "number": number, "weight": 100}],
                sticky="none",
                actor="system",
                at=at,
            )
        )


def _rebuild(
    table: str,
    *,
    dropped: Sequence[str] = (),
    added: Mapping[str, str] | None = None,
    columns: Sequence[sa.Column[object]] = (),
    dropped_columns: Sequence[str] = (),
    dropped_unique: str | None = None,
    added_unique: tuple[str, list[str]] | None = None,
    dropped_reference: str | None = None,
) -> None:
    """Change a table's checks, named without the table's prefix, and its columns."""
    with op.batch_alter_table(table) as batch:
        for name in dropped:
            batch.drop_constraint(op.f(f"ck_{table}_{name}"), type_="check")
        if dropped_reference:
            batch.drop_constraint(op.f(dropped_reference), type_="foreignkey")
        if dropped_unique:
            batch.drop_constraint(op.f(dropped_unique), type_="unique")
        for column in columns:
            batch.add_column(column)
        for name in dropped_columns:
            batch.drop_column(name)
        for name, condition in (added or {}).items():
            batch.create_check_constraint(op.f(f"ck_{table}_{name}"), sa.text(condition))
        if added_unique:
            batch.create_unique_constraint(op.f(added_unique[0]), added_unique[1])
