"""Aliases: `live` is set by the first version that becomes ready, and moved only on request."""

from __future__ import annotations

from sqlalchemy.orm import Session

from lorikeet_platform.db.tables import AdapterVersion, Alias
from lorikeet_platform.registry.names import DEFAULT_ALIAS


def point_live_at(work: Session, version: AdapterVersion, *, now: int) -> None:
    """Set or move `live` to a ready version, because somebody asks for it now."""
    alias = _live(work, version)
    if alias is None:
        _set_live(work, version, now)
    else:
        _move(alias, version, now)


def point_live_when_ready(work: Session, version: AdapterVersion, *, now: int) -> None:
    """Do for `live` what was asked when the version was pushed.

    Verdicts may come in another order than pushes: an older version that is ready late takes nothing back from a newer.
    """
    alias = _live(work, version)
    if alias is None:
        _set_live(work, version, now)
    elif version.live_when_ready:
        current = work.get_one(AdapterVersion, (alias.tenant_id, alias.version_id))
        if current.number < version.number:
            _move(alias, version, now)


def _live(work: Session, version: AdapterVersion) -> Alias | None:
    key = (version.tenant_id, version.adapter_id, DEFAULT_ALIAS)
    return work.get(Alias, key, with_for_update=True, populate_existing=True)


def _set_live(work: Session, version: AdapterVersion, now: int) -> None:
    work.add(
        Alias(
            tenant_id=version.tenant_id,
            adapter_id=version.adapter_id,
            alias=DEFAULT_ALIAS,
            version_id=version.id,
            updated_at=now,
        )
    )


def _move(alias: Alias, version: AdapterVersion, now: int) -> None:
    if alias.version_id != version.id:
        alias.version_id, alias.revision, alias.updated_at = version.id, alias.revision + 1, now
