"""Budgets and roll-ups, audit events, and who is alive.

What was settled before is in its month's budgets, and its hours and days are to be added up. What a dead gateway left
open can be settled.
"""

from __future__ import annotations

import calendar
import time

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

SECOND = 1_000_000
HOUR, DAY = 3600 * SECOND, 86_400 * SECOND
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
SQLITE_TRIGGERS = {
    "audit_events_no_update": "BEFORE UPDATE ON audit_events",
    "audit_events_no_delete": "BEFORE DELETE ON audit_events",
    # INSERT OR REPLACE removes the row with the same key, or the same rowid, without a DELETE.
    "audit_events_no_replace": "BEFORE INSERT ON audit_events WHEN EXISTS"
    " (SELECT 1 FROM audit_events WHERE id = NEW.id OR (rowid = NEW.rowid AND NEW.rowid > 0))",
}
POSTGRES_TRIGGERS = {
    "audit_events_append_only": "BEFORE UPDATE OR DELETE ON audit_events",
    "audit_events_no_truncate": "BEFORE TRUNCATE ON audit_events",
}
NEW_TABLES = (
    "usage_dirty",
    "usage_rollups",
    "budget_counters",
    "chores",
    "gateways",
    "audit_events",
)


def upgrade() -> None:
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
        for name, when in SQLITE_TRIGGERS.items():
            op.execute(
                f"CREATE TRIGGER {name} {when} BEGIN SELECT RAISE(ABORT, 'audit events are only added'); END"
                if is_forbidden
                else f"DROP TRIGGER {name}"
            )
        return
    if not is_forbidden:
        for name in POSTGRES_TRIGGERS:
            op.execute(f"DROP TRIGGER {name} ON audit_events")
        op.execute("DROP FUNCTION refuse_audit_change()")
        return
    op.execute(
        "CREATE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'audit events are only added' USING ERRCODE = 'insufficient_privilege'; END $$"
    )
    for name, when in POSTGRES_TRIGGERS.items():
        op.execute(f"CREATE TRIGGER {name} {when} FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change()")


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
    """Open records have counters too, without which they could never be settled."""
    billed = "sum(CASE WHEN state = 'settled' THEN prompt_tokens + completion_tokens ELSE 0 END)"
    for subject in ("tenant_id", "subject_id"):
        op.execute(
            "INSERT INTO budget_counters (tenant_id, subject_id, period_start, reserved, settled)"
            f" SELECT tenant_id, {subject}, period_start, 0, {billed} FROM usage_records"
            f" GROUP BY tenant_id, {subject}, period_start"
        )
    for granularity, length in (("hour", HOUR), ("day", DAY)):
        op.execute(
            "INSERT INTO usage_dirty (tenant_id, granularity, bucket_start, marks)"
            f" SELECT DISTINCT tenant_id, '{granularity}', admitted_at - admitted_at % {length}, 1 FROM usage_records"
            " WHERE state = 'settled'"
        )
