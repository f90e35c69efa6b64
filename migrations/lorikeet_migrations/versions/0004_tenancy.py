"""Plans and limits, and keys with scopes and lineages.

What was recorded before keeps its meaning: keys may do what they could, tenants are on the plan `standard`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

GIB = 1 << 30

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


def upgrade() -> None:
    _create_plans()
    _extend_tenants()
    _extend_keys()
    _create_limits()


def downgrade() -> None:
    _revoke_narrow_keys()
    for table in ("key_limits", "tenant_limits"):
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


def _revoke_narrow_keys() -> None:
    """The older schema cannot say what such keys must not do: there they would do everything, from everywhere."""
    work = op.get_bind()
    keys = sa.table(
        "api_keys",
        *(sa.column(name) for name in ("tenant_id", "id", "subject_id", "status", "revoked_at")),
        *(sa.column(name, sa.JSON(none_as_null=True)) for name in ("scopes", "allowed_adapters", "ip_allowlist")),
    )
    blocked = set(work.execute(sa.text("SELECT tenant_id, subject_id FROM key_limits WHERE value = 0")).all())
    for key in work.execute(sa.select(keys).where(keys.c.status == "active")).all():
        is_narrow = not set(ALL_BUT_KEYS) <= set(key.scopes)
        is_bound = key.allowed_adapters is not None or key.ip_allowlist is not None
        if is_narrow or is_bound or (key.tenant_id, key.subject_id) in blocked:
            work.execute(
                keys.update()
                .where(keys.c.tenant_id == key.tenant_id, keys.c.id == key.id)
                .values(status="revoked", revoked_at=time.time_ns() // 1_000)
            )


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
