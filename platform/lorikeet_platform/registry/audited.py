"""Events of the registry: what was done to which version, alias, adapter or upload, under the names tenants know."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from lorikeet_platform.audit.service import Action, record
from lorikeet_platform.db.tables import Adapter, AdapterVersion, Upload


def record_version(
    work: Session, version: AdapterVersion, action: Action, *, actor: str, now: int, **details: Any
) -> None:
    """`name:number`, with the state it is in after the change."""
    adapter = work.get_one(Adapter, (version.tenant_id, version.adapter_id))
    record(
        work,
        tenant_id=version.tenant_id,
        actor=actor,
        action=action,
        subject=f"{adapter.name}:{version.number}",
        now=now,
        details={"version_id": version.id, "state": version.state, **_given(details)},
    )


def record_alias(
    work: Session, tenant_id: str, adapter_id: str, alias: str, action: Action, *, actor: str, now: int, **details: Any
) -> None:
    """`name@alias`."""
    adapter = work.get_one(Adapter, (tenant_id, adapter_id))
    record(
        work,
        tenant_id=tenant_id,
        actor=actor,
        action=action,
        subject=f"{adapter.name}@{alias}",
        now=now,
        details=_given(details),
    )


def record_upload(work: Session, upload: Upload, action: Action, *, actor: str, now: int, **details: Any) -> None:
    """By its id; of which adapter's file is among the details."""
    record(
        work,
        tenant_id=upload.tenant_id,
        actor=actor,
        action=action,
        subject=upload.id,
        now=now,
        details={"adapter": upload.adapter_name, "filename": upload.filename, **_given(details)},
    )


def _given(details: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in details.items() if value is not None}
