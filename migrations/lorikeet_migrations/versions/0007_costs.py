"""What each request cost, and the same in roll-ups.

Nothing is known of requests before: those that used tokens count as without cost. On Postgres a tenant's transactions
see their rows and write none; the platform writes them.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

HOUR, DAY = 3_600_000_000, 86_400_000_000
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
            batch.add_column(sa.Column(name, kind(), nullable=False, server_default=sa.text("0")))
    _count_requests_without_cost()
    with op.batch_alter_table("usage_rollups") as batch:
        for name, kind in columns.items():
            batch.alter_column(name, existing_type=kind(), server_default=None)


def _count_requests_without_cost() -> None:
    """All that used tokens. Hours are counted, days added up, as `usage.rollups` does; nothing is marked for it.

    A bucket that is marked already gets its figures when its turn comes.
    """
    group = "tenant_id, bucket_start, key_id, base_model, version_id"
    of_records = (
        f"SELECT {group}, count(*) AS n FROM (SELECT tenant_id, admitted_at - admitted_at % {HOUR} AS bucket_start,"
        " key_id, base_model, coalesce(version_id, '') AS version_id FROM usage_records"
        f" WHERE state = 'settled' AND completion_tokens > 0) AS used GROUP BY {group}"
    )
    of_hours = (
        f"SELECT {group}, sum(n) AS n FROM (SELECT tenant_id, bucket_start - bucket_start % {DAY} AS bucket_start,"
        " key_id, base_model, version_id, requests_without_cost AS n FROM usage_rollups"
        f" WHERE granularity = 'hour' AND requests_without_cost > 0) AS hours GROUP BY {group}"
    )
    for granularity, found in (("hour", of_records), ("day", of_hours)):
        is_same = " AND ".join(f"found.{name} = usage_rollups.{name}" for name in group.split(", "))
        op.execute(
            f"UPDATE usage_rollups SET requests_without_cost = found.n FROM ({found}) AS found"
            f" WHERE usage_rollups.granularity = '{granularity}' AND {is_same}"
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
