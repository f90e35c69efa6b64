"""The first tables: tenants, keys, adapters and versions, uploads, jobs, usage, sign-in."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

TABLES = (
    "owner_tokens",
    "sessions",
    "tenants",
    "adapters",
    "api_keys",
    "uploads",
    "adapter_versions",
    "upload_slices",
    "aliases",
    "jobs",
    "usage_records",
    "version_files",
)


def upgrade() -> None:
    _create_owner_tokens()
    _create_sessions()
    _create_tenants()
    _create_adapters()
    _create_api_keys()
    _create_uploads()
    _create_adapter_versions()
    _create_upload_slices()
    _create_aliases()
    _create_jobs()
    _create_usage_records()
    _create_version_files()


def downgrade() -> None:
    for table in reversed(TABLES):
        op.drop_table(table)


def _create_owner_tokens() -> None:
    op.create_table(
        "owner_tokens",
        sa.Column("token_hash", sa.LargeBinary(length=32), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("used_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("length(token_hash) = 32", name=op.f("ck_owner_tokens_token_hash_length")),
        sa.PrimaryKeyConstraint("token_hash", name=op.f("pk_owner_tokens")),
    )


def _create_sessions() -> None:
    op.create_table(
        "sessions",
        sa.Column("id_hash", sa.LargeBinary(length=32), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("last_seen_at", sa.BigInteger(), nullable=False),
        sa.Column("idle_expires_at", sa.BigInteger(), nullable=False),
        sa.Column("absolute_expires_at", sa.BigInteger(), nullable=False),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("role IN ('owner')", name=op.f("ck_sessions_role")),
        sa.CheckConstraint("length(id_hash) = 32", name=op.f("ck_sessions_id_hash_length")),
        sa.PrimaryKeyConstraint("id_hash", name=op.f("pk_sessions")),
    )
    op.create_index("ix_sessions_absolute_expires_at", "sessions", ["absolute_expires_at"], unique=False)


def _create_tenants() -> None:
    op.create_table(
        "tenants",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("slug", sa.String(length=40), nullable=False),
        sa.Column("display_name", sa.String(length=200), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("cache_salt", sa.LargeBinary(length=32), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("status IN ('active', 'suspended')", name=op.f("ck_tenants_status")),
        sa.CheckConstraint("length(cache_salt) = 32", name=op.f("ck_tenants_cache_salt_length")),
        sa.CheckConstraint("length(slug) BETWEEN 3 AND 40", name=op.f("ck_tenants_slug_length")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tenants")),
        sa.UniqueConstraint("slug", name=op.f("uq_tenants_slug")),
    )


def _create_adapters() -> None:
    op.create_table(
        "adapters",
        sa.Column("tenant_id", sa.String(length=32), nullable=False),
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("description", sa.String(length=1000), nullable=True),
        sa.Column("base_model", sa.String(length=128), nullable=False),
        sa.Column("next_version", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("next_version >= 1", name=op.f("ck_adapters_next_version")),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_adapters_tenant_id")),
        sa.PrimaryKeyConstraint("tenant_id", "id", name=op.f("pk_adapters")),
        sa.UniqueConstraint("tenant_id", "name", name=op.f("uq_adapters_tenant_id_name")),
    )


def _create_api_keys() -> None:
    op.create_table(
        "api_keys",
        sa.Column("tenant_id", sa.String(length=32), nullable=False),
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("public_id", sa.String(length=12), nullable=False),
        sa.Column("secret_mac", sa.LargeBinary(length=32), nullable=False),
        sa.Column("pepper_version", sa.SmallInteger(), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("hint", sa.String(length=4), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.Column("last_used_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("status IN ('active', 'revoked')", name=op.f("ck_api_keys_status")),
        sa.CheckConstraint("length(secret_mac) = 32", name=op.f("ck_api_keys_secret_mac_length")),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_api_keys_tenant_id")),
        sa.PrimaryKeyConstraint("tenant_id", "id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("id", name=op.f("uq_api_keys_id")),
        sa.UniqueConstraint("public_id", name=op.f("uq_api_keys_public_id")),
    )
    op.create_index(
        "uq_api_keys_active_name",
        "api_keys",
        ["tenant_id", "name"],
        unique=True,
        sqlite_where=sa.text("status = 'active'"),
        postgresql_where=sa.text("status = 'active'"),
    )


def _create_uploads() -> None:
    op.create_table(
        "uploads",
        sa.Column("tenant_id", sa.String(length=32), nullable=False),
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("adapter_name", sa.String(length=64), nullable=False),
        sa.Column("filename", sa.String(length=64), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("length", sa.BigInteger(), nullable=False),
        sa.Column("received", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("created_by", sa.String(length=32), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "filename IN ('adapter_config.json', 'adapter_model.safetensors')", name=op.f("ck_uploads_filename")
        ),
        sa.CheckConstraint("state IN ('open', 'sealed', 'consumed', 'terminated')", name=op.f("ck_uploads_state")),
        sa.CheckConstraint(
            "state NOT IN ('sealed', 'consumed') OR received = length", name=op.f("ck_uploads_sealed_is_complete")
        ),
        sa.CheckConstraint("received >= 0 AND received <= length", name=op.f("ck_uploads_received")),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_uploads_tenant_id")),
        sa.PrimaryKeyConstraint("tenant_id", "id", name=op.f("pk_uploads")),
    )
    op.create_index("ix_uploads_state_expires_at", "uploads", ["state", "expires_at"], unique=False)


def _create_adapter_versions() -> None:
    op.create_table(
        "adapter_versions",
        sa.Column("tenant_id", sa.String(length=32), nullable=False),
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("adapter_id", sa.String(length=32), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("state_rev", sa.Integer(), nullable=False),
        sa.Column("live_when_ready", sa.Boolean(), nullable=False),
        sa.Column("description", sa.String(length=1000), nullable=True),
        sa.Column("digest", sa.String(length=64), nullable=True),
        sa.Column("rank", sa.Integer(), nullable=True),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("serving_bytes", sa.BigInteger(), nullable=True),
        sa.Column("tensor_count", sa.Integer(), nullable=True),
        sa.Column("target_modules", sa.JSON(), nullable=False),
        sa.Column("config", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("reject_code", sa.String(length=64), nullable=True),
        sa.Column("reject_detail", sa.String(length=2048), nullable=True),
        sa.Column("warnings", sa.JSON(), nullable=False),
        sa.Column("created_by", sa.String(length=32), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("ready_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "state <> 'ready' OR (digest IS NOT NULL AND ready_at IS NOT NULL)",
            name=op.f("ck_adapter_versions_ready_has_content"),
        ),
        sa.CheckConstraint(
            "state <> 'rejected' OR reject_code IS NOT NULL", name=op.f("ck_adapter_versions_rejected_has_code")
        ),
        sa.CheckConstraint(
            "state IN ('validating', 'ready', 'rejected', 'failed_internal')", name=op.f("ck_adapter_versions_state")
        ),
        sa.CheckConstraint("number >= 1", name=op.f("ck_adapter_versions_number")),
        sa.ForeignKeyConstraint(
            ["tenant_id", "adapter_id"],
            ["adapters.tenant_id", "adapters.id"],
            name=op.f("fk_adapter_versions_tenant_id_adapter_id"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "id", name=op.f("pk_adapter_versions")),
        sa.UniqueConstraint("tenant_id", "adapter_id", "id", name=op.f("uq_adapter_versions_tenant_id_adapter_id_id")),
        sa.UniqueConstraint(
            "tenant_id", "adapter_id", "number", name=op.f("uq_adapter_versions_tenant_id_adapter_id_number")
        ),
    )
    op.create_index("ix_adapter_versions_digest", "adapter_versions", ["tenant_id", "digest"], unique=False)


def _create_upload_slices() -> None:
    op.create_table(
        "upload_slices",
        sa.Column("tenant_id", sa.String(length=32), nullable=False),
        sa.Column("upload_id", sa.String(length=32), nullable=False),
        sa.Column("begin", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("slice_id", sa.String(length=32), nullable=False),
        sa.Column("stored_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("begin >= 0 AND bytes > 0", name=op.f("ck_upload_slices_extent")),
        sa.ForeignKeyConstraint(
            ["tenant_id", "upload_id"],
            ["uploads.tenant_id", "uploads.id"],
            name=op.f("fk_upload_slices_tenant_id_upload_id"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "upload_id", "begin", name=op.f("pk_upload_slices")),
    )


def _create_aliases() -> None:
    op.create_table(
        "aliases",
        sa.Column("tenant_id", sa.String(length=32), nullable=False),
        sa.Column("adapter_id", sa.String(length=32), nullable=False),
        sa.Column("alias", sa.String(length=64), nullable=False),
        sa.Column("version_id", sa.String(length=32), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id", "adapter_id", "version_id"],
            ["adapter_versions.tenant_id", "adapter_versions.adapter_id", "adapter_versions.id"],
            name=op.f("fk_aliases_tenant_id_adapter_id_version_id"),
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id", "adapter_id"],
            ["adapters.tenant_id", "adapters.id"],
            name=op.f("fk_aliases_tenant_id_adapter_id"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "adapter_id", "alias", name=op.f("pk_aliases")),
    )


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("tenant_id", sa.String(length=32), nullable=False),
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("version_id", sa.String(length=32), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("lease_token", sa.String(length=32), nullable=True),
        sa.Column("lease_expires_at", sa.BigInteger(), nullable=True),
        sa.Column("run_after", sa.BigInteger(), nullable=False),
        sa.Column("wake_at", sa.BigInteger(), nullable=False),
        sa.Column("last_error", sa.String(length=2048), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("kind <> 'validate' OR version_id IS NOT NULL", name=op.f("ck_jobs_validate_has_version")),
        sa.CheckConstraint("kind IN ('validate')", name=op.f("ck_jobs_kind")),
        sa.CheckConstraint(
            "state <> 'leased' OR (lease_token IS NOT NULL AND lease_expires_at IS NOT NULL)",
            name=op.f("ck_jobs_lease"),
        ),
        sa.CheckConstraint("state IN ('queued', 'leased', 'done', 'failed')", name=op.f("ck_jobs_state")),
        sa.ForeignKeyConstraint(
            ["tenant_id", "version_id"],
            ["adapter_versions.tenant_id", "adapter_versions.id"],
            name=op.f("fk_jobs_tenant_id_version_id"),
        ),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_jobs_tenant_id")),
        sa.PrimaryKeyConstraint("tenant_id", "id", name=op.f("pk_jobs")),
        sa.UniqueConstraint("id", name=op.f("uq_jobs_id")),
    )
    op.create_index("ix_jobs_state_wake_at", "jobs", ["state", "wake_at"], unique=False)
    op.create_index(
        "uq_jobs_unfinished",
        "jobs",
        ["tenant_id", "kind", "version_id"],
        unique=True,
        sqlite_where=sa.text("state IN ('queued', 'leased')"),
        postgresql_where=sa.text("state IN ('queued', 'leased')"),
    )


def _create_usage_records() -> None:
    op.create_table(
        "usage_records",
        sa.Column("tenant_id", sa.String(length=32), nullable=False),
        sa.Column("request_id", sa.String(length=32), nullable=False),
        sa.Column("key_id", sa.String(length=32), nullable=False),
        sa.Column("route", sa.String(length=64), nullable=False),
        sa.Column("base_model", sa.String(length=128), nullable=False),
        sa.Column("adapter_id", sa.String(length=32), nullable=True),
        sa.Column("version_id", sa.String(length=32), nullable=True),
        sa.Column("stream", sa.Boolean(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("outcome", sa.String(length=32), nullable=True),
        sa.Column("prompt_tokens", sa.Integer(), nullable=False),
        sa.Column("completion_tokens", sa.Integer(), nullable=False),
        sa.Column("admitted_at", sa.BigInteger(), nullable=False),
        sa.Column("settled_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "(state = 'open' AND outcome IS NULL AND settled_at IS NULL) "
            "OR (state = 'settled' AND outcome IS NOT NULL AND settled_at IS NOT NULL)",
            name=op.f("ck_usage_records_settled"),
        ),
        sa.CheckConstraint(
            "outcome IN ('ok', 'client_cancelled', 'server_error', 'deadline', 'revoked', 'shed')",
            name=op.f("ck_usage_records_outcome"),
        ),
        sa.CheckConstraint("state IN ('open', 'settled')", name=op.f("ck_usage_records_state")),
        sa.CheckConstraint("prompt_tokens >= 0 AND completion_tokens >= 0", name=op.f("ck_usage_records_tokens")),
        sa.ForeignKeyConstraint(
            ["tenant_id", "adapter_id"],
            ["adapters.tenant_id", "adapters.id"],
            name=op.f("fk_usage_records_tenant_id_adapter_id"),
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id", "key_id"],
            ["api_keys.tenant_id", "api_keys.id"],
            name=op.f("fk_usage_records_tenant_id_key_id"),
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id", "version_id"],
            ["adapter_versions.tenant_id", "adapter_versions.id"],
            name=op.f("fk_usage_records_tenant_id_version_id"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "request_id", name=op.f("pk_usage_records")),
        sa.UniqueConstraint("request_id", name=op.f("uq_usage_records_request_id")),
    )
    op.create_index(
        "ix_usage_records_open",
        "usage_records",
        ["admitted_at"],
        unique=False,
        sqlite_where=sa.text("state = 'open'"),
        postgresql_where=sa.text("state = 'open'"),
    )
    op.create_index(
        "ix_usage_records_tenant_id_admitted_at", "usage_records", ["tenant_id", "admitted_at"], unique=False
    )


def _create_version_files() -> None:
    op.create_table(
        "version_files",
        sa.Column("tenant_id", sa.String(length=32), nullable=False),
        sa.Column("version_id", sa.String(length=32), nullable=False),
        sa.Column("filename", sa.String(length=64), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("upload_id", sa.String(length=32), nullable=False),
        sa.CheckConstraint(
            "filename IN ('adapter_config.json', 'adapter_model.safetensors')", name=op.f("ck_version_files_filename")
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id", "upload_id"],
            ["uploads.tenant_id", "uploads.id"],
            name=op.f("fk_version_files_tenant_id_upload_id"),
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id", "version_id"],
            ["adapter_versions.tenant_id", "adapter_versions.id"],
            name=op.f("fk_version_files_tenant_id_version_id"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "version_id", "filename", name=op.f("pk_version_files")),
    )
