"""Plans and limits, keys with scopes and lineages, budgets and roll-ups, audit events, and who is alive.

What was recorded before keeps its meaning: keys may do what they could, tenants are on the plan `standard`, settled
requests are in their months' budgets.
"""

from __future__ import annotations

import calendar
import json
import time
from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

SECOND = 1_000_000
HOUR, DAY = 3600 * SECOND, 86_400 * SECOND
MIB, GIB = 1 << 20, 1 << 30

# Every plan has a value for every dimension; the third figure is the burst.
STANDARD: Sequence[tuple[str, int, int | None]] = (
    ("rpm", 6_000, 1_000),
    ("tpm", 4_000_000, 1_000_000),
    ("concurrent", 256, None),
    ("queue_depth", 256, None),
    ("monthly_tokens", 1_000_000_000_000, None),
    ("max_context", 1_048_576, None),
    ("max_output_tokens", 131_072, None),
    ("max_n", 8, None),
    ("adapters", 100, None),
    ("adapter_bytes", 50 * GIB, None),
    ("upload_inflight_bytes", 8 * GIB, None),
    ("open_uploads", 16, None),
    ("keys", 100, None),
)
# What every key could do before keys had scopes.
ALL_BUT_KEYS = (
    "inference",
    "models:read",
    "adapters:read",
    "adapters:write",
    "deployments:write",
    "usage:read",
    "audit:read",
)
DIMENSION = "dimension IN (" + ", ".join(f"'{name}'" for name, _, _ in STANDARD) + ")"
BURST = "burst IS NULL OR (burst >= 0 AND dimension IN ('rpm', 'tpm'))"
OLD_SETTLED = (
    "(state = 'open' AND outcome IS NULL AND settled_at IS NULL) "
    "OR (state = 'settled' AND outcome IS NOT NULL AND settled_at IS NOT NULL)"
)
NEW_USAGE_CHECKS = {
    "settled": "(state = 'open' AND outcome IS NULL AND settled_at IS NULL AND settled_by IS NULL) "
    "OR (state = 'settled' AND outcome IS NOT NULL AND settled_at IS NOT NULL AND settled_by IS NOT NULL)",
    "settled_by": "settled_by IN ('gateway', 'engine_outbox', 'reaper')",
    "tokens": "prompt_tokens >= 0 AND completion_tokens >= 0 AND est_tokens >= 0",
    "n": "n >= 1",
}
NEW_TABLES = (
    "usage_dirty",
    "usage_rollups",
    "budget_counters",
    "chores",
    "gateways",
    "audit_events",
    "key_limits",
    "tenant_limits",
)


def upgrade() -> None:
    _create_plans()
    _extend_tenants()
    _extend_keys()
    _create_limits()
    _create_audit_events()
    _create_processes()
    _create_usage_tables()
    _extend_usage_records()
    _count_what_was_settled()


def downgrade() -> None:
    _shrink_usage_records()
    _forbid_audit_changes(is_forbidden=False)
    for table in NEW_TABLES:
        op.drop_table(table)
    _shrink_keys()
    _shrink_tenants()
    op.drop_table("plan_limits")
    op.drop_table("plans")


def _create_plans() -> None:
    op.create_table(
        "plans",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("display_name", sa.String(length=200), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_plans")),
    )
    _create_limit_table(
        "plan_limits",
        {"plan_id": 40},
        sa.ForeignKeyConstraint(["plan_id"], ["plans.id"], name=op.f("fk_plan_limits_plan_id"), ondelete="CASCADE"),
    )
    now = time.time_ns() // 1_000
    work = op.get_bind()
    work.execute(sa.text("INSERT INTO plans VALUES ('standard', 'Standard', :now)"), {"now": now})
    work.execute(
        sa.text(
            "INSERT INTO plan_limits (plan_id, dimension, value, burst, updated_by, updated_at)"
            " VALUES ('standard', :dimension, :value, :burst, 'system', :now)"
        ),
        [{"dimension": name, "value": value, "burst": burst, "now": now} for name, value, burst in STANDARD],
    )


def _create_limits() -> None:
    _create_limit_table(
        "tenant_limits",
        {"tenant_id": 32},
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_tenant_limits_tenant_id")),
    )
    _create_limit_table(
        "key_limits",
        {"tenant_id": 32, "subject_id": 32},
        sa.ForeignKeyConstraint(
            ["tenant_id", "subject_id"],
            ["api_keys.tenant_id", "api_keys.id"],
            name=op.f("fk_key_limits_tenant_id_subject_id"),
        ),
    )


def _create_limit_table(name: str, subject: Mapping[str, int], reference: sa.ForeignKeyConstraint) -> None:
    op.create_table(
        name,
        *(sa.Column(column, sa.String(length=length), nullable=False) for column, length in subject.items()),
        sa.Column("dimension", sa.String(length=32), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.Column("burst", sa.BigInteger(), nullable=True),
        sa.Column("updated_by", sa.String(length=64), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(DIMENSION, name=op.f(f"ck_{name}_dimension")),
        sa.CheckConstraint("value >= 0", name=op.f(f"ck_{name}_value")),
        sa.CheckConstraint(BURST, name=op.f(f"ck_{name}_burst")),
        reference,
        sa.PrimaryKeyConstraint(*subject, "dimension", name=op.f(f"pk_{name}")),
    )


def _extend_tenants() -> None:
    with op.batch_alter_table("tenants") as batch:
        batch.add_column(
            sa.Column("plan_id", sa.String(length=40), nullable=False, server_default=sa.text("'standard'"))
        )
        batch.add_column(sa.Column("keys_make_keys", sa.Boolean(), nullable=False, server_default=sa.text("false")))
        batch.add_column(sa.Column("suspended_at", sa.BigInteger(), nullable=True))
        batch.create_foreign_key(op.f("fk_tenants_plan_id"), "plans", ["plan_id"], ["id"])
    op.execute("UPDATE tenants SET suspended_at = created_at WHERE status = 'suspended'")
    with op.batch_alter_table("tenants") as batch:
        batch.create_check_constraint(
            op.f("ck_tenants_suspended_at"), sa.text("(status = 'suspended') = (suspended_at IS NOT NULL)")
        )


def _shrink_tenants() -> None:
    with op.batch_alter_table("tenants") as batch:
        batch.drop_constraint(op.f("ck_tenants_suspended_at"), type_="check")
        batch.drop_constraint(op.f("fk_tenants_plan_id"), type_="foreignkey")
        for column in ("plan_id", "keys_make_keys", "suspended_at"):
            batch.drop_column(column)


def _extend_keys() -> None:
    op.drop_index("uq_api_keys_active_name", "api_keys")
    with op.batch_alter_table("api_keys") as batch:
        for column in (
            sa.Column("scopes", sa.JSON(), nullable=False, server_default=sa.text(f"'{json.dumps(ALL_BUT_KEYS)}'")),
            sa.Column("allowed_adapters", sa.JSON(none_as_null=True), nullable=True),
            sa.Column("ip_allowlist", sa.JSON(none_as_null=True), nullable=True),
            sa.Column("subject_id", sa.String(length=32), nullable=True),
            sa.Column("rotated_from", sa.String(length=32), nullable=True),
            sa.Column("replaced_at", sa.BigInteger(), nullable=True),
            sa.Column("created_by", sa.String(length=64), nullable=False, server_default=sa.text("'administrator'")),
            sa.Column("revoke_reason", sa.String(length=500), nullable=True),
            sa.Column("last_used_network", sa.String(length=50), nullable=True),
        ):
            batch.add_column(column)
    op.execute("UPDATE api_keys SET subject_id = id")
    op.execute("UPDATE api_keys SET revoked_at = created_at WHERE status = 'revoked' AND revoked_at IS NULL")
    with op.batch_alter_table("api_keys") as batch:
        batch.alter_column("scopes", existing_type=sa.JSON(), server_default=None)
        batch.alter_column("created_by", existing_type=sa.String(length=64), server_default=None)
        batch.alter_column("subject_id", existing_type=sa.String(length=32), nullable=False)
        batch.create_check_constraint(
            op.f("ck_api_keys_revoked_at"), sa.text("(status = 'revoked') = (revoked_at IS NOT NULL)")
        )
        for name in ("subject_id", "rotated_from"):
            batch.create_foreign_key(
                op.f(f"fk_api_keys_tenant_id_{name}"), "api_keys", ["tenant_id", name], ["tenant_id", "id"]
            )
    current = sa.text("status = 'active' AND replaced_at IS NULL")
    op.create_index(
        "uq_api_keys_active_name",
        "api_keys",
        ["tenant_id", "name"],
        unique=True,
        sqlite_where=current,
        postgresql_where=current,
    )
    op.create_index("ix_api_keys_subject", "api_keys", ["tenant_id", "subject_id"])


def _shrink_keys() -> None:
    op.drop_index("ix_api_keys_subject", "api_keys")
    op.drop_index("uq_api_keys_active_name", "api_keys")
    # The older schema knows no two active keys of one name: those that were being replaced are named by their ids.
    op.execute("UPDATE api_keys SET name = id WHERE status = 'active' AND replaced_at IS NOT NULL")
    with op.batch_alter_table("api_keys") as batch:
        batch.drop_constraint(op.f("ck_api_keys_revoked_at"), type_="check")
        for column in ("subject_id", "rotated_from"):
            batch.drop_constraint(op.f(f"fk_api_keys_tenant_id_{column}"), type_="foreignkey")
        for column in (
            "scopes",
            "allowed_adapters",
            "ip_allowlist",
            "subject_id",
            "rotated_from",
            "replaced_at",
            "created_by",
            "revoke_reason",
            "last_used_network",
        ):
            batch.drop_column(column)
    active = sa.text("status = 'active'")
    op.create_index(
        "uq_api_keys_active_name",
        "api_keys",
        ["tenant_id", "name"],
        unique=True,
        sqlite_where=active,
        postgresql_where=active,
    )


def _create_audit_events() -> None:
    op.create_table(
        "audit_events",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("tenant_id", sa.String(length=32), nullable=True),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("actor_kind", sa.String(length=16), nullable=False),
        sa.Column("actor", sa.String(length=64), nullable=False),
        sa.Column("request_id", sa.String(length=32), nullable=True),
        sa.Column("action", sa.String(length=64), nullable=False),
        sa.Column("subject", sa.String(length=200), nullable=False),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.CheckConstraint("actor_kind IN ('key', 'administrator', 'system')", name=op.f("ck_audit_events_actor_kind")),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_audit_events_tenant_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_events")),
    )
    op.create_index("ix_audit_events_tenant_id_id", "audit_events", ["tenant_id", "id"])
    _forbid_audit_changes(is_forbidden=True)


def _forbid_audit_changes(*, is_forbidden: bool) -> None:
    """Who may write the table may still only add to it."""
    if op.get_bind().dialect.name == "sqlite":
        for change in ("UPDATE", "DELETE"):
            name = f"audit_events_no_{change.lower()}"
            op.execute(
                f"CREATE TRIGGER {name} BEFORE {change} ON audit_events"
                " BEGIN SELECT RAISE(ABORT, 'audit events are only added'); END"
                if is_forbidden
                else f"DROP TRIGGER {name}"
            )
        return
    if not is_forbidden:
        op.execute("DROP TRIGGER audit_events_append_only ON audit_events")
        op.execute("DROP FUNCTION refuse_audit_change()")
        return
    op.execute(
        "CREATE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'audit events are only added' USING ERRCODE = 'insufficient_privilege'; END $$"
    )
    op.execute(
        "CREATE TRIGGER audit_events_append_only BEFORE UPDATE OR DELETE ON audit_events"
        " FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change()"
    )


def _create_processes() -> None:
    op.create_table(
        "gateways",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_gateways")),
    )
    op.create_table(
        "chores",
        sa.Column("name", sa.String(length=40), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.String(length=32), nullable=True),
        sa.Column("lease_expires_at", sa.BigInteger(), nullable=True),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.Column("error", sa.String(length=200), nullable=True),
        sa.Column("result", sa.JSON(none_as_null=True), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_chores")),
    )


def _create_usage_tables() -> None:
    op.create_table(
        "budget_counters",
        sa.Column("tenant_id", sa.String(length=32), nullable=False),
        sa.Column("subject_id", sa.String(length=32), nullable=False),
        sa.Column("period_start", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("reserved", sa.BigInteger(), nullable=False),
        sa.Column("settled", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("reserved >= 0 AND settled >= 0", name=op.f("ck_budget_counters_figures")),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_budget_counters_tenant_id")),
        sa.PrimaryKeyConstraint("tenant_id", "subject_id", "period_start", name=op.f("pk_budget_counters")),
    )
    granularity = "granularity IN ('hour', 'day')"
    op.create_table(
        "usage_rollups",
        sa.Column("tenant_id", sa.String(length=32), nullable=False),
        sa.Column("granularity", sa.String(length=8), nullable=False),
        sa.Column("bucket_start", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("key_id", sa.String(length=32), nullable=False),
        sa.Column("base_model", sa.String(length=128), nullable=False),
        sa.Column("version_id", sa.String(length=32), nullable=False),
        sa.Column("adapter_id", sa.String(length=32), nullable=False),
        *(
            sa.Column(name, sa.BigInteger(), nullable=False)
            for name in ("requests", "errors", "prompt_tokens", "cached_tokens", "completion_tokens", "computed_at")
        ),
        sa.CheckConstraint(granularity, name=op.f("ck_usage_rollups_granularity")),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_usage_rollups_tenant_id")),
        sa.PrimaryKeyConstraint(
            "tenant_id",
            "granularity",
            "bucket_start",
            "key_id",
            "base_model",
            "version_id",
            name=op.f("pk_usage_rollups"),
        ),
    )
    op.create_table(
        "usage_dirty",
        sa.Column("tenant_id", sa.String(length=32), nullable=False),
        sa.Column("granularity", sa.String(length=8), nullable=False),
        sa.Column("bucket_start", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("marks", sa.Integer(), nullable=False),
        sa.CheckConstraint(granularity, name=op.f("ck_usage_dirty_granularity")),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_usage_dirty_tenant_id")),
        sa.PrimaryKeyConstraint("tenant_id", "granularity", "bucket_start", name=op.f("pk_usage_dirty")),
    )


def _extend_usage_records() -> None:
    with op.batch_alter_table("usage_records") as batch:
        for column in (
            sa.Column("subject_id", sa.String(length=32), nullable=True),
            sa.Column("gateway_id", sa.String(length=32), nullable=True),
            sa.Column("n", sa.Integer(), nullable=False, server_default=sa.text("1")),
            sa.Column("settled_by", sa.String(length=16), nullable=True),
            sa.Column("est_tokens", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
            sa.Column("period_start", sa.BigInteger(), nullable=True),
        ):
            batch.add_column(column)
    op.execute("UPDATE usage_records SET subject_id = key_id")
    op.execute("UPDATE usage_records SET settled_by = 'gateway' WHERE state = 'settled'")
    _fill_periods()
    with op.batch_alter_table("usage_records") as batch:
        for name in ("settled", "tokens"):
            batch.drop_constraint(op.f(f"ck_usage_records_{name}"), type_="check")
        batch.alter_column("subject_id", existing_type=sa.String(length=32), nullable=False)
        batch.alter_column("period_start", existing_type=sa.BigInteger(), nullable=False)
        for name, condition in NEW_USAGE_CHECKS.items():
            batch.create_check_constraint(op.f(f"ck_usage_records_{name}"), sa.text(condition))


def _shrink_usage_records() -> None:
    with op.batch_alter_table("usage_records") as batch:
        for name in NEW_USAGE_CHECKS:
            batch.drop_constraint(op.f(f"ck_usage_records_{name}"), type_="check")
        for column in ("subject_id", "gateway_id", "n", "settled_by", "est_tokens", "period_start"):
            batch.drop_column(column)
        batch.create_check_constraint(op.f("ck_usage_records_settled"), sa.text(OLD_SETTLED))
        batch.create_check_constraint(
            op.f("ck_usage_records_tokens"), sa.text("prompt_tokens >= 0 AND completion_tokens >= 0")
        )


def _fill_periods() -> None:
    work = op.get_bind()
    first, last = work.execute(sa.text("SELECT min(admitted_at), max(admitted_at) FROM usage_records")).one()
    if first is None:
        return
    begin = _month_of(first)
    while begin <= last:
        end = _month_of(begin + 32 * DAY)
        work.execute(
            sa.text(
                "UPDATE usage_records SET period_start = :begin WHERE admitted_at >= :begin AND admitted_at < :end"
            ),
            {"begin": begin, "end": end},
        )
        begin = end


def _month_of(at_us: int) -> int:
    moment = time.gmtime(at_us // SECOND)
    return calendar.timegm((moment.tm_year, moment.tm_mon, 1, 0, 0, 0)) * SECOND


def _count_what_was_settled() -> None:
    for subject in ("tenant_id", "subject_id"):
        op.execute(
            "INSERT INTO budget_counters (tenant_id, subject_id, period_start, reserved, settled)"
            f" SELECT tenant_id, {subject}, period_start, 0, sum(prompt_tokens + completion_tokens) FROM usage_records"
            f" WHERE state = 'settled' GROUP BY tenant_id, {subject}, period_start"
        )
    for granularity, length in (("hour", HOUR), ("day", DAY)):
        op.execute(
            "INSERT INTO usage_dirty (tenant_id, granularity, bucket_start, marks)"
            f" SELECT DISTINCT tenant_id, '{granularity}', admitted_at - admitted_at % {length}, 1 FROM usage_records"
            " WHERE state = 'settled'"
        )
