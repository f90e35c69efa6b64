"""Work to be done outside requests: shape and constraints."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, ForeignKey, ForeignKeyConstraint, Index, String, text
from sqlalchemy.orm import Mapped, mapped_column

from lorikeet_platform.db.tables.metadata import Count, Id, Micros, Table, TenantOwned, one_of

# `retire` tells the engine and waits for what runs; `purge` removes the bytes.
JOB_KINDS = ("validate", "retire", "purge")
JOB_STATES = ("queued", "leased", "done", "failed")
_UNFINISHED = text("state IN ('queued', 'leased')")


class Job(TenantOwned, Table):
    __tablename__ = "jobs"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "version_id"], ["adapter_versions.tenant_id", "adapter_versions.id"]),
        one_of("kind", JOB_KINDS),
        one_of("state", JOB_STATES),
        CheckConstraint("version_id IS NOT NULL", name="has_version"),
        CheckConstraint(
            "state <> 'leased' OR (lease_token IS NOT NULL AND lease_expires_at IS NOT NULL)", name="lease"
        ),
        Index(
            "uq_jobs_unfinished",
            "tenant_id",
            "kind",
            "version_id",
            unique=True,
            sqlite_where=_UNFINISHED,
            postgresql_where=_UNFINISHED,
        ),
        Index("ix_jobs_state_wake_at", "state", "wake_at"),
    )

    tenant_id: Mapped[Id] = mapped_column(ForeignKey("tenants.id"), primary_key=True)
    id: Mapped[Id] = mapped_column(primary_key=True, unique=True)
    kind: Mapped[str] = mapped_column(String(16))
    version_id: Mapped[Id | None]
    state: Mapped[str] = mapped_column(String(16), default="queued")
    attempt: Mapped[Count] = mapped_column(default=0)
    max_attempts: Mapped[Count] = mapped_column(default=5)
    lease_token: Mapped[Id | None]
    lease_expires_at: Mapped[Micros | None]
    run_after: Mapped[Micros] = mapped_column(doc="not before this time")
    wake_at: Mapped[Micros] = mapped_column(doc="when the sweeper sends the next message for it")
    last_error: Mapped[str | None] = mapped_column(String(2048))
    created_at: Mapped[Micros]
    finished_at: Mapped[Micros | None]
