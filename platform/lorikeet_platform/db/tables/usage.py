"""Usage records: shape and constraints. No column ever holds content."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, ForeignKeyConstraint, Index, String, text
from sqlalchemy.orm import Mapped, mapped_column

from lorikeet_platform.db.tables.metadata import Count, Id, Micros, Table, one_of

OUTCOMES = ("ok", "client_cancelled", "server_error", "deadline", "revoked", "shed")
_OPEN = text("state = 'open'")


class UsageRecord(Table):
    __tablename__ = "usage_records"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "key_id"], ["api_keys.tenant_id", "api_keys.id"]),
        ForeignKeyConstraint(["tenant_id", "adapter_id"], ["adapters.tenant_id", "adapters.id"]),
        ForeignKeyConstraint(["tenant_id", "version_id"], ["adapter_versions.tenant_id", "adapter_versions.id"]),
        one_of("state", ("open", "settled")),
        one_of("outcome", OUTCOMES),
        CheckConstraint(
            "(state = 'open' AND outcome IS NULL AND settled_at IS NULL) "
            "OR (state = 'settled' AND outcome IS NOT NULL AND settled_at IS NOT NULL)",
            name="settled",
        ),
        CheckConstraint("prompt_tokens >= 0 AND completion_tokens >= 0", name="tokens"),
        CheckConstraint("cached_tokens >= 0 AND cached_tokens <= prompt_tokens", name="cached_tokens"),
        Index("ix_usage_records_tenant_id_admitted_at", "tenant_id", "admitted_at"),
        Index("ix_usage_records_version", "tenant_id", "version_id", "admitted_at"),
        Index("ix_usage_records_open", "admitted_at", sqlite_where=_OPEN, postgresql_where=_OPEN),
    )

    tenant_id: Mapped[Id] = mapped_column(primary_key=True)
    request_id: Mapped[Id] = mapped_column(primary_key=True, unique=True)
    key_id: Mapped[Id]
    route: Mapped[str] = mapped_column(String(64))
    base_model: Mapped[str] = mapped_column(String(128))
    adapter_id: Mapped[Id | None]
    version_id: Mapped[Id | None]
    stream: Mapped[bool]
    state: Mapped[str] = mapped_column(String(16), default="open")
    outcome: Mapped[str | None] = mapped_column(String(32))
    prompt_tokens: Mapped[Count] = mapped_column(default=0)
    completion_tokens: Mapped[Count] = mapped_column(default=0)
    cached_tokens: Mapped[Count] = mapped_column(
        default=0, server_default=text("0"), doc="the part of prompt_tokens found in the prefix cache"
    )
    admitted_at: Mapped[Micros]
    first_token_at: Mapped[Micros | None]
    settled_at: Mapped[Micros | None]
