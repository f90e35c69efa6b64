"""Tenants: shape and constraints."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Float, ForeignKey, String, text
from sqlalchemy.orm import Mapped, mapped_column

from lorikeet_platform.db.tables.metadata import Bytes32, Id, Micros, Table, length_is, one_of

TENANT_STATUSES = ("active", "suspended")


class Tenant(Table):
    __tablename__ = "tenants"
    __table_args__ = (
        one_of("status", TENANT_STATUSES),
        length_is("cache_salt", 32),
        CheckConstraint("length(slug) BETWEEN 3 AND 40", name="slug_length"),
        CheckConstraint("weight > 0", name="weight"),
        CheckConstraint("(status = 'suspended') = (suspended_at IS NOT NULL)", name="suspended_at"),
    )

    id: Mapped[Id] = mapped_column(primary_key=True)
    slug: Mapped[str] = mapped_column(String(40), unique=True)
    display_name: Mapped[str] = mapped_column(String(200))
    plan_id: Mapped[str] = mapped_column(ForeignKey("plans.id"), default="standard", server_default=text("'standard'"))
    status: Mapped[str] = mapped_column(String(16), default="active")
    weight: Mapped[float] = mapped_column(Float, default=1.0, server_default=text("1"))
    keys_make_keys: Mapped[bool] = mapped_column(
        default=False, server_default=text("false"), doc="whether an API key may hold the scope keys:write"
    )
    cache_salt: Mapped[Bytes32] = mapped_column(doc="random; separates prefix caches, never leaves the server")
    created_at: Mapped[Micros]
    suspended_at: Mapped[Micros | None]
