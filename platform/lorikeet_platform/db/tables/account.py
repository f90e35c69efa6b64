"""Sign-in on the administration port: shape and constraints. Only hashes of secrets are stored."""

from __future__ import annotations

from sqlalchemy import Index, String
from sqlalchemy.orm import Mapped, mapped_column

from lorikeet_platform.db.tables.metadata import Bytes32, Micros, Table, length_is, one_of

ROLES = ("owner",)


class OwnerToken(Table):
    """A one-time link for the owner; one hour, single use."""

    __tablename__ = "owner_tokens"
    __table_args__ = (length_is("token_hash", 32),)

    token_hash: Mapped[Bytes32] = mapped_column(primary_key=True)
    created_at: Mapped[Micros]
    expires_at: Mapped[Micros]
    used_at: Mapped[Micros | None]


class Session(Table):
    __tablename__ = "sessions"
    __table_args__ = (
        length_is("id_hash", 32),
        one_of("role", ROLES),
        Index("ix_sessions_absolute_expires_at", "absolute_expires_at"),
    )

    id_hash: Mapped[Bytes32] = mapped_column(primary_key=True)
    role: Mapped[str] = mapped_column(String(16))
    created_at: Mapped[Micros]
    last_seen_at: Mapped[Micros]
    idle_expires_at: Mapped[Micros]
    absolute_expires_at: Mapped[Micros]
    revoked_at: Mapped[Micros | None]
