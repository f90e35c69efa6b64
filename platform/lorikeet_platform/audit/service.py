"""Adds events. Never a secret, never content of requests or files: ids, names, and what was set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from sqlalchemy.orm import Session

from lorikeet_platform.auth.actor import ADMINISTRATOR, SYSTEM
from lorikeet_platform.db.tables import AuditEvent
from lorikeet_platform.ids import new_id
from lorikeet_platform.telemetry.request_id import current_request_id

Action = Literal[
    "adapter.delete",
    "alias.guard_rollback",
    "alias.remove",
    "alias.rollback",
    "alias.set",
    "job.retry",
    "key.create",
    "key.leaked",
    "key.limits",
    "key.revoke",
    "key.rotate",
    "key.update",
    "owner.link",
    "owner.sign_in",
    "owner.sign_out",
    "plan.create",
    "plan.limits",
    "tenant.create",
    "tenant.limits",
    "tenant.resume",
    "tenant.suspend",
    "tenant.update",
    "upload.create",
    "upload.terminate",
    "version.create",
    "version.delete",
    "version.quarantine",
    "version.release",
    "version.restore",
    "version.retire",
    "version.retry",
    "version.verdict",
    "version.purge",
    "version.update",
]


def record(
    work: Session,
    *,
    tenant_id: str | None,
    actor: str,
    action: Action,
    subject: str,
    now: int,
    details: Mapping[str, Any] | None = None,
) -> None:
    """One event in the caller's transaction: it is there if, and only if, the change is.

    Args:
        tenant_id: whose event it is; None = the platform's.
        actor: id of a key, `ADMINISTRATOR` or `SYSTEM`.
        subject: what was changed: an id, or a name within the tenant.
    """
    kind = actor if actor in (ADMINISTRATOR, SYSTEM) else "key"
    work.add(
        AuditEvent(
            id=new_id("evt"),
            tenant_id=tenant_id,
            at=now,
            actor_kind=kind,
            actor=actor,
            request_id=current_request_id(),
            action=action,
            subject=subject,
            details=dict(details or {}),
        )
    )
