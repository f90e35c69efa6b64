"""Reads events, the newest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from lorikeet_platform.db.tables import AuditEvent, Tenant


@dataclass(frozen=True, slots=True)
class EventEntry:
    """An event with its tenant's slug; None = of the platform."""

    event: AuditEvent
    slug: str | None


def newest(work: Session, tenant_id: str | None, *, behind: str | None, limit: int) -> Sequence[EventEntry]:
    """Up to `limit` events that are older than the one of that id; of one tenant, or all with those of the platform."""
    statement = select(AuditEvent, Tenant.slug).outerjoin(Tenant, Tenant.id == AuditEvent.tenant_id)
    if tenant_id is not None:
        statement = statement.where(AuditEvent.tenant_id == tenant_id)
    if behind is not None:
        statement = statement.where(AuditEvent.id < behind)
    rows = work.execute(statement.order_by(AuditEvent.id.desc()).limit(limit))
    return [EventEntry(event, slug) for event, slug in rows]
