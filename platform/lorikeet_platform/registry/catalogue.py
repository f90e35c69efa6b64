"""What a tenant has: adapters with versions and aliases."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from lorikeet_platform.db.tables import Adapter, AdapterVersion, Alias
from lorikeet_platform.errors import PlatformError, quoted


@dataclass(frozen=True, slots=True)
class AdapterEntry:
    adapter: Adapter
    aliases: dict[str, int] = field(default_factory=dict)
    versions: list[AdapterVersion] = field(default_factory=list)


def list_adapters(session: Session, tenant_id: str) -> list[AdapterEntry]:
    """A tenant's adapters by name, each with its versions, newest first."""
    adapters = session.scalars(select(Adapter).where(Adapter.tenant_id == tenant_id).order_by(Adapter.name))
    entries = {adapter.id: AdapterEntry(adapter) for adapter in adapters}
    versions = session.scalars(
        select(AdapterVersion).where(AdapterVersion.tenant_id == tenant_id).order_by(AdapterVersion.number.desc())
    )
    numbers = {}
    for version in versions:
        entries[version.adapter_id].versions.append(version)
        numbers[version.id] = version.number
    for alias in session.scalars(select(Alias).where(Alias.tenant_id == tenant_id).order_by(Alias.alias)):
        entries[alias.adapter_id].aliases[alias.alias] = numbers[alias.version_id]
    return list(entries.values())


def get_adapter(session: Session, tenant_id: str, name: str) -> AdapterEntry:
    """Raises PlatformError(not_found), for another tenant's adapter as for none."""
    for entry in list_adapters(session, tenant_id):
        if entry.adapter.name == name:
            return entry
    raise PlatformError("not_found", f"There is no adapter {quoted(name)}.")


def get_version(session: Session, tenant_id: str, name: str, number: int) -> AdapterVersion:
    """Raises PlatformError(not_found)."""
    version = session.scalars(
        select(AdapterVersion)
        .join(Adapter, (Adapter.tenant_id == AdapterVersion.tenant_id) & (Adapter.id == AdapterVersion.adapter_id))
        .where(
            AdapterVersion.tenant_id == tenant_id,
            Adapter.tenant_id == tenant_id,
            Adapter.name == name,
            AdapterVersion.number == number,
        )
    ).one_or_none()
    if version is None:
        raise PlatformError("not_found", f"There is no version {number} of an adapter {quoted(name)}.")
    return version


def count_ready(session: Session) -> int:
    """Adapters of all tenants with at least one ready version."""
    ready = (
        select(AdapterVersion.tenant_id, AdapterVersion.adapter_id).where(AdapterVersion.state == "ready").distinct()
    )
    return session.scalar(select(func.count()).select_from(ready.subquery())) or 0


def names_by_digest(session: Session) -> dict[tuple[str, str], str]:
    """`name:number` of every ready version by (tenant id, digest), for the administrator's view of the engine."""
    rows = session.execute(
        select(AdapterVersion.tenant_id, AdapterVersion.digest, Adapter.name, AdapterVersion.number)
        .join(Adapter, (Adapter.tenant_id == AdapterVersion.tenant_id) & (Adapter.id == AdapterVersion.adapter_id))
        .where(AdapterVersion.state == "ready")
        .order_by(AdapterVersion.number)
    )
    return {(row.tenant_id, row.digest): f"{row.name}:{row.number}" for row in rows}
