"""What each request cost, and the same in roll-ups.

Nothing is known of requests before: those that used tokens count as without cost. On Postgres a tenant's transactions
see their rows and write none; the platform writes them.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

APP, PLATFORM = "lorikeet_app", "lorikeet_platform"
CURRENT_TENANT = "NULLIF(current_setting('app.tenant_id', true), '')"
COSTS = (
    "prefill_flops",
    "decode_flops",
    "prefill_read_bytes",
    "decode_read_bytes",
    "write_bytes",
    "kv_byte_seconds",
    "adapter_byte_seconds",
    "load_bytes",
    "wasted_flops",
    "swap_bytes",
)


def upgrade() -> None:
    op.create_table(
        "usage_costs",
        *(sa.Column(name, sa.Float(), nullable=False) for name in COSTS),
        sa.Column("tenant_id", sa.String(length=32), nullable=False),
        sa.Column("request_id", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id", "request_id"],
            ["usage_records.tenant_id", "usage_records.request_id"],
            name=op.f("fk_usage_costs_tenant_id_request_id"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "request_id", name=op.f("pk_usage_costs")),
    )
    _extend_rollups()
    if op.get_bind().dialect.name == "postgresql":
        _protect()


def downgrade() -> None:
    with op.batch_alter_table("usage_rollups") as batch:
        for name in (*COSTS, "requests_without_cost"):
            batch.drop_column(name)
    op.drop_table("usage_costs")


def _extend_rollups() -> None:
    columns: dict[str, type[sa.Float[float] | sa.BigInteger]] = dict.fromkeys(COSTS, sa.Float)
    columns["requests_without_cost"] = sa.BigInteger
    with op.batch_alter_table("usage_rollups") as batch:
        for name, kind in columns.items():
            batch.add_column(sa.Column(name, kind(), nullable=True))
    op.execute(f"UPDATE usage_rollups SET {', '.join(f'{name} = 0' for name in COSTS)}, requests_without_cost = 0")
    with op.batch_alter_table("usage_rollups") as batch:
        for name, kind in columns.items():
            batch.alter_column(name, existing_type=kind(), nullable=False)
    # How many of a bucket's requests used tokens is not in it: all of them are computed again.
    op.execute(
        "INSERT INTO usage_dirty (tenant_id, granularity, bucket_start, marks)"
        " SELECT DISTINCT tenant_id, granularity, bucket_start, 1 FROM usage_rollups WHERE true"
        " ON CONFLICT (tenant_id, granularity, bucket_start) DO UPDATE SET marks = usage_dirty.marks + 1"
    )


def _protect() -> None:
    op.execute(f"GRANT SELECT ON usage_costs TO {APP}")
    op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON usage_costs TO {PLATFORM}")
    op.execute("ALTER TABLE usage_costs ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE usage_costs FORCE ROW LEVEL SECURITY")
    op.execute(
        f"CREATE POLICY own_tenant ON usage_costs TO {APP}"
        f" USING (tenant_id = {CURRENT_TENANT}) WITH CHECK (tenant_id = {CURRENT_TENANT})"
    )
    op.execute(f"CREATE POLICY all_tenants ON usage_costs TO {PLATFORM} USING (true) WITH CHECK (true)")
