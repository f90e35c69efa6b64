"""Row-level security on Postgres: two roles that own nothing and bypass nothing, and a policy on every tenant's table.

`lorikeet_app` sees the rows of the tenant that the transaction named, and changes only those that are the tenant's to
change; `lorikeet_platform` sees all. Roles belong to the whole server, so a downgrade takes away what they may do here
and leaves them. SQLite has none of this; there the session does it.
"""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"

APP, PLATFORM = "lorikeet_app", "lorikeet_platform"
TENANT_TABLES = (
    "adapter_versions",
    "adapters",
    "alias_history",
    "alias_targets",
    "aliases",
    "api_keys",
    "audit_events",
    "blob_deletions",
    "budget_counters",
    "jobs",
    "key_limits",
    "tenant_limits",
    "upload_slices",
    "uploads",
    "usage_dirty",
    "usage_records",
    "usage_rollups",
    "version_files",
)
OTHER_TABLES = ("chores", "gateways", "owner_tokens", "plan_limits", "plans", "sessions")
# What a tenant pays by and is held by is never removed in its name.
KEPT = ("api_keys", "budget_counters", "tenant_limits", "tenants", "usage_records")
# Of these, all that changes in a tenant's name; a row can only be locked by who may change something of it.
CHANGED = {
    "budget_counters": ("reserved", "settled"),
    "tenants": ("created_at",),
    "usage_records": (
        *("state", "outcome", "settled_by", "settled_at", "first_token_at", "adapter_id", "version_id"),
        *("prompt_tokens", "cached_tokens", "completion_tokens"),
    ),
}
# NULLIF: before its first use in a session the setting reads NULL, after a transaction that had it, as an empty string.
CURRENT_TENANT = "NULLIF(current_setting('app.tenant_id', true), '')"


def upgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    for role in (APP, PLATFORM):
        _create_role(role)
    op.execute(f"GRANT USAGE ON SCHEMA public TO {APP}, {PLATFORM}")
    for table in TENANT_TABLES:
        _protect(table, "tenant_id")
    _protect("tenants", "id")
    for table in OTHER_TABLES:
        op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {PLATFORM}")
    op.execute(f"GRANT SELECT ON plans, plan_limits TO {APP}")
    op.execute(f"REVOKE UPDATE, DELETE ON audit_events FROM {APP}, {PLATFORM}")
    op.execute(f"REVOKE DELETE ON {', '.join(KEPT)} FROM {APP}")
    op.execute(f"REVOKE INSERT ON tenants FROM {APP}")
    op.execute(f"REVOKE INSERT, UPDATE ON tenant_limits FROM {APP}")
    for table, columns in CHANGED.items():
        op.execute(f"REVOKE UPDATE ON {table} FROM {APP}")
        op.execute(f"GRANT UPDATE ({', '.join(columns)}) ON {table} TO {APP}")


def downgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    for table in (*TENANT_TABLES, "tenants"):
        op.execute(f"DROP POLICY own_tenant ON {table}")
        op.execute(f"DROP POLICY all_tenants ON {table}")
        op.execute(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")
    everything = ", ".join((*TENANT_TABLES, *OTHER_TABLES, "tenants"))
    op.execute(f"REVOKE ALL ON {everything} FROM {APP}, {PLATFORM}")
    op.execute(f"REVOKE USAGE ON SCHEMA public FROM {APP}, {PLATFORM}")


def _create_role(role: str) -> None:
    """Another database of this server, or whoever administers it, may have made it; or be making it now."""
    op.execute(
        f"DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{role}') THEN"
        f" CREATE ROLE {role} NOLOGIN NOBYPASSRLS; END IF;"
        " EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$"
    )
    # So that the login that migrates can also serve, where one login does both and may say so.
    op.execute(f"DO $$ BEGIN GRANT {role} TO CURRENT_USER; EXCEPTION WHEN insufficient_privilege THEN NULL; END $$")


def _protect(table: str, column: str) -> None:
    op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {APP}, {PLATFORM}")
    op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
    op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
    op.execute(
        f"CREATE POLICY own_tenant ON {table} TO {APP}"
        f" USING ({column} = {CURRENT_TENANT}) WITH CHECK ({column} = {CURRENT_TENANT})"
    )
    op.execute(f"CREATE POLICY all_tenants ON {table} TO {PLATFORM} USING (true) WITH CHECK (true)")
