"""Audit events as the API shows them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from lorikeet_platform.audit.events import EventEntry
from lorikeet_platform.audit.service import Action
from lorikeet_platform.clock import unix_seconds
from lorikeet_platform.web.pagination import Page


class AuditEvent(BaseModel):
    """Something that was changed, by whom."""

    object: Literal["audit_event"] = "audit_event"
    id: str
    at: int = Field(description="unix seconds")
    tenant: str | None = Field(description="slug; null for what concerns no tenant")
    actor_kind: Literal["key", "administrator", "system"]
    actor: str = Field(description="a key's id, or the kind itself")
    request_id: str | None = Field(description="null for what was done outside of requests")
    action: Action
    subject: str = Field(description="what was changed: an id, or a name within the tenant")
    details: dict[str, Any]

    @classmethod
    def of(cls, entry: EventEntry) -> AuditEvent:
        event = entry.event
        return cls(
            id=event.id,
            at=unix_seconds(event.at),
            tenant=entry.slug,
            actor_kind=event.actor_kind,  # type: ignore[arg-type]
            actor=event.actor,
            request_id=event.request_id,
            action=event.action,  # type: ignore[arg-type]
            subject=event.subject,
            details=event.details,
        )


class AuditEventPage(Page[AuditEvent]):
    """The newest first."""
