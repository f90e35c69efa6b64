"""API keys: shape and constraints. The secret itself is never stored."""

from __future__ import annotations

from sqlalchemy import JSON, CheckConstraint, ForeignKey, ForeignKeyConstraint, Index, SmallInteger, String, text
from sqlalchemy.orm import Mapped, mapped_column

from lorikeet_platform.db.tables.metadata import Bytes32, Id, Micros, Table, TenantOwned, length_is, one_of

KEY_STATUSES = ("active", "revoked")


class ApiKey(TenantOwned, Table):
    """A key, and its place in a lineage: rotation makes a new key that keeps the `subject_id` of the first.

    Rate buckets, budgets and limits hang on the subject, so that rotating never fills them anew.
    """

    __tablename__ = "api_keys"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "subject_id"], ["api_keys.tenant_id", "api_keys.id"]),
        ForeignKeyConstraint(["tenant_id", "rotated_from"], ["api_keys.tenant_id", "api_keys.id"]),
        one_of("status", KEY_STATUSES),
        length_is("secret_mac", 32),
        CheckConstraint("(status = 'revoked') = (revoked_at IS NOT NULL)", name="revoked_at"),
        # During a rotation the old and the new key have one name; the old one is marked as replaced.
        Index(
            "uq_api_keys_active_name",
            "tenant_id",
            "name",
            unique=True,
            sqlite_where=text("status = 'active' AND replaced_at IS NULL"),
            postgresql_where=text("status = 'active' AND replaced_at IS NULL"),
        ),
        Index("ix_api_keys_subject", "tenant_id", "subject_id"),
    )

    tenant_id: Mapped[Id] = mapped_column(ForeignKey("tenants.id"), primary_key=True)
    id: Mapped[Id] = mapped_column(primary_key=True, unique=True)
    public_id: Mapped[str] = mapped_column(String(12), unique=True)
    secret_mac: Mapped[Bytes32] = mapped_column(doc="HMAC-SHA256 of the whole key under the pepper")
    pepper_version: Mapped[int] = mapped_column(SmallInteger)
    name: Mapped[str] = mapped_column(String(100))
    hint: Mapped[str] = mapped_column(String(4), doc="last four characters of the secret")
    scopes: Mapped[list[str]] = mapped_column(JSON, doc="of `auth.scopes`")
    allowed_adapters: Mapped[list[str] | None] = mapped_column(
        JSON(none_as_null=True), doc="ids; none = all of the tenant, and the base model"
    )
    ip_allowlist: Mapped[list[str] | None] = mapped_column(JSON(none_as_null=True), doc="networks; none = anywhere")
    subject_id: Mapped[Id]
    rotated_from: Mapped[Id | None]
    replaced_at: Mapped[Micros | None] = mapped_column(doc="since when a rotated key has a successor")
    status: Mapped[str] = mapped_column(String(16), default="active")
    created_by: Mapped[str] = mapped_column(String(64), doc="id of a key, or 'administrator'")
    created_at: Mapped[Micros]
    expires_at: Mapped[Micros | None]
    revoked_at: Mapped[Micros | None]
    revoke_reason: Mapped[str | None] = mapped_column(String(500))
    last_used_at: Mapped[Micros | None] = mapped_column(doc="to the minute")
    last_used_network: Mapped[str | None] = mapped_column(String(50), doc="the caller's /24, or /64 of IPv6")
