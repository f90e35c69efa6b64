"""Plans, and the limits of plans, tenants and keys: shape and constraints.

What a subject has no row for is not limited by it; a plan has a row for every dimension. 0 = blocked.
"""

from __future__ import annotations

from sqlalchemy import CheckConstraint, ForeignKey, ForeignKeyConstraint, String
from sqlalchemy.orm import Mapped, mapped_column

from lorikeet_platform.db.tables.metadata import Id, Micros, Size, Table, TenantOwned, one_of

DIMENSIONS = (
    "rpm",
    "tpm",
    "concurrent",
    "queue_depth",
    "monthly_tokens",
    "max_context",
    "max_output_tokens",
    "max_n",
    "adapters",
    "adapter_bytes",
    "upload_inflight_bytes",
    "open_uploads",
    "keys",
)


def _figures() -> tuple[CheckConstraint, ...]:
    return (
        one_of("dimension", DIMENSIONS),
        CheckConstraint("value >= 0", name="value"),
        CheckConstraint("burst IS NULL OR (burst >= 0 AND dimension IN ('rpm', 'tpm'))", name="burst"),
    )


class Plan(Table):
    __tablename__ = "plans"

    id: Mapped[str] = mapped_column(String(40), primary_key=True, doc="its name, such as `standard`")
    display_name: Mapped[str] = mapped_column(String(200))
    created_at: Mapped[Micros]


class PlanLimit(Table):
    __tablename__ = "plan_limits"
    __table_args__ = _figures()

    plan_id: Mapped[str] = mapped_column(ForeignKey("plans.id", ondelete="CASCADE"), primary_key=True)
    dimension: Mapped[str] = mapped_column(String(32), primary_key=True)
    value: Mapped[Size]
    burst: Mapped[Size | None] = mapped_column(
        doc="how much may come at once, for rpm and tpm; none = a minute's worth"
    )
    updated_by: Mapped[str] = mapped_column(String(64))
    updated_at: Mapped[Micros]


class TenantLimit(TenantOwned, Table):
    __tablename__ = "tenant_limits"
    __table_args__ = _figures()

    tenant_id: Mapped[Id] = mapped_column(ForeignKey("tenants.id"), primary_key=True)
    dimension: Mapped[str] = mapped_column(String(32), primary_key=True)
    value: Mapped[Size]
    burst: Mapped[Size | None]
    updated_by: Mapped[str] = mapped_column(String(64))
    updated_at: Mapped[Micros]


class KeyLimit(TenantOwned, Table):
    """`subject_id` is the first key of a lineage: what it may do outlives its rotation."""

    __tablename__ = "key_limits"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "subject_id"], ["api_keys.tenant_id", "api_keys.id"]),
        *_figures(),
    )

    tenant_id: Mapped[Id] = mapped_column(primary_key=True)
    subject_id: Mapped[Id] = mapped_column(primary_key=True)
    dimension: Mapped[str] = mapped_column(String(32), primary_key=True)
    value: Mapped[Size]
    burst: Mapped[Size | None]
    updated_by: Mapped[str] = mapped_column(String(64))
    updated_at: Mapped[Micros]
