"""Aliases: `live` is set by the first version that becomes ready, and moved only on request."""

from __future__ import annotations

from sqlalchemy.orm import Session

from lorikeet_platform.db.tables import AdapterVersion, Alias
from lorikeet_platform.registry.names import DEFAULT_ALIAS


def point_live_at(work: Session, version: AdapterVersion, *, only_if_unset: bool, now: int) -> None:
    """Set or move `live` to a ready version."""
    key = (version.tenant_id, version.adapter_id, DEFAULT_ALIAS)
    alias = work.get(Alias, key, with_for_update=True)
    if alias is None:
        tenant_id, adapter_id, name = key
        work.add(Alias(tenant_id=tenant_id, adapter_id=adapter_id, alias=name, version_id=version.id, updated_at=now))
    elif not only_if_unset and alias.version_id != version.id:
        alias.version_id, alias.revision, alias.updated_at = version.id, alias.revision + 1, now
