"""What was changed, by whom: shape and constraints. Rows are only ever added; both databases refuse the rest."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from lorikeet_platform.db.tables.metadata import Id, Micros, Table, TenantOwned, one_of

ACTOR_KINDS = ("key", "administrator", "system")


class AuditEvent(TenantOwned, Table):
    __tablename__ = "audit_events"
    __table_args__ = (
        one_of("actor_kind", ACTOR_KINDS),
        Index("ix_audit_events_tenant_id_id", "tenant_id", "id"),
    )

    id: Mapped[Id] = mapped_column(primary_key=True, doc="sorts by time")
    tenant_id: Mapped[Id | None] = mapped_column(ForeignKey("tenants.id"), doc="none = of the platform")
    at: Mapped[Micros]
    actor_kind: Mapped[str] = mapped_column(String(16))
    actor: Mapped[str] = mapped_column(String(64), doc="id of a key, 'administrator' or 'system'")
    request_id: Mapped[Id | None]
    action: Mapped[str] = mapped_column(String(64), doc="such as `key.revoke`")
    subject: Mapped[str] = mapped_column(String(200), doc="what was changed: an id or a name within the tenant")
    details: Mapped[dict[str, Any]] = mapped_column(JSON, doc="what it was changed to; never a secret")
