"""API keys: shape and constraints. The secret itself is never stored."""

from __future__ import annotations

from sqlalchemy import ForeignKey, Index, SmallInteger, String, text
from sqlalchemy.orm import Mapped, mapped_column

from lorikeet_platform.db.tables.metadata import Bytes32, Id, Micros, Table, length_is, one_of

KEY_STATUSES = ("active", "revoked")
_ACTIVE = text("status = 'active'")


class ApiKey(Table):
    __tablename__ = "api_keys"
    __table_args__ = (
        one_of("status", KEY_STATUSES),
        length_is("secret_mac", 32),
        Index(
            "uq_api_keys_active_name", "tenant_id", "name", unique=True, sqlite_where=_ACTIVE, postgresql_where=_ACTIVE
        ),
    )

    tenant_id: Mapped[Id] = mapped_column(ForeignKey("tenants.id"), primary_key=True)
    id: Mapped[Id] = mapped_column(primary_key=True, unique=True)
    public_id: Mapped[str] = mapped_column(String(12), unique=True)
    secret_mac: Mapped[Bytes32] = mapped_column(doc="HMAC-SHA256 of the whole key under the pepper")
    pepper_version: Mapped[int] = mapped_column(SmallInteger)
    name: Mapped[str] = mapped_column(String(100))
    hint: Mapped[str] = mapped_column(String(4), doc="last four characters of the secret")
    status: Mapped[str] = mapped_column(String(16), default="active")
    created_at: Mapped[Micros]
    expires_at: Mapped[Micros | None]
    revoked_at: Mapped[Micros | None]
    last_used_at: Mapped[Micros | None] = mapped_column(doc="to the minute")
