"""What a tenant has: adapters with versions and aliases. Deleted adapters are not there.

A transaction that reaches some of them only (`registry.reach`) is shown no others, and is told so when it names one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from lorikeet_platform.db.tables import Adapter, AdapterVersion, Alias, AliasTarget, VersionFile
from lorikeet_platform.errors import PlatformError, quoted
from lorikeet_platform.registry.reach import check_reach, reach_of


@dataclass(frozen=True, slots=True)
class AliasEntry:
    """An alias and the (version number, weight) pairs it points at, by number."""

    alias: Alias
    targets: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class AdapterEntry:
    adapter: Adapter
    aliases: list[AliasEntry] = field(default_factory=list)
    versions: list[AdapterVersion] = field(default_factory=list)


def list_adapters(session: Session, tenant_id: str) -> list[AdapterEntry]:
    """A tenant's adapters by name, each with its versions, newest first, and its aliases by name."""
    mine = _active(tenant_id)
    reach = reach_of(session)
    return _entries(session, mine if reach is None else mine.where(Adapter.id.in_(sorted(reach))))


def get_adapter(session: Session, tenant_id: str, name: str) -> AdapterEntry:
    """Raises PlatformError: not_found, for another tenant's adapter as for none; adapter_not_allowed_for_key."""
    entries = _entries(session, _active(tenant_id).where(Adapter.name == name))
    if not entries:
        raise adapter_not_found(name)
    check_reach(session, entries[0].adapter.id)
    return entries[0]


def find_adapter(session: Session, tenant_id: str, name: str, *, for_update: bool = False) -> Adapter:
    """The adapter's row alone. Raises PlatformError: not_found, adapter_not_allowed_for_key.

    `for_update` holds off every other change of the adapter's versions and aliases: all of them lock this row first.
    """
    mine = _active(tenant_id).where(Adapter.name == name)
    if for_update:
        mine = mine.with_for_update(key_share=True)
    adapter = session.scalars(mine, execution_options={"populate_existing": for_update}).one_or_none()
    if adapter is None:
        raise adapter_not_found(name)
    check_reach(session, adapter.id)
    return adapter


def get_version(
    session: Session, tenant_id: str, name: str, number: int, *, for_update: bool = False
) -> AdapterVersion:
    """Raises what `find_adapter` raises. `for_update` locks the adapter, then the version."""
    adapter = find_adapter(session, tenant_id, name, for_update=for_update)
    mine = select(AdapterVersion).where(
        AdapterVersion.tenant_id == tenant_id, AdapterVersion.adapter_id == adapter.id, AdapterVersion.number == number
    )
    if for_update:
        mine = mine.with_for_update(key_share=True)
    version = session.scalars(mine, execution_options={"populate_existing": for_update}).one_or_none()
    if version is None:
        raise PlatformError("not_found", f"There is no version {number} of an adapter {quoted(name)}.")
    return version


def list_files(session: Session, version: AdapterVersion) -> Sequence[VersionFile]:
    """A version's files by name."""
    mine = select(VersionFile).where(VersionFile.tenant_id == version.tenant_id, VersionFile.version_id == version.id)
    return session.scalars(mine.order_by(VersionFile.filename)).all()


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


def adapter_not_found(name: str) -> PlatformError:
    return PlatformError("not_found", f"There is no adapter {quoted(name)}.")


def _active(tenant_id: str) -> Select[Adapter]:
    return select(Adapter).where(Adapter.tenant_id == tenant_id, Adapter.status == "active")


def _entries(session: Session, mine: Select[Adapter]) -> list[AdapterEntry]:
    """The adapters that `mine` selects among one tenant's, by name."""
    adapters = session.scalars(mine.order_by(Adapter.name)).all()
    if not adapters:
        return []
    entries = {adapter.id: AdapterEntry(adapter) for adapter in adapters}
    tenant_id = adapters[0].tenant_id
    ids = mine.with_only_columns(Adapter.id).scalar_subquery()
    versions = select(AdapterVersion).where(AdapterVersion.tenant_id == tenant_id, AdapterVersion.adapter_id.in_(ids))
    numbers = {}
    for version in session.scalars(versions.order_by(AdapterVersion.number.desc())):
        entries[version.adapter_id].versions.append(version)
        numbers[version.id] = version.number
    aliases: dict[tuple[str, str], AliasEntry] = {}
    rows = select(Alias).where(Alias.tenant_id == tenant_id, Alias.adapter_id.in_(ids)).order_by(Alias.alias)
    for alias in session.scalars(rows):
        aliases[alias.adapter_id, alias.alias] = AliasEntry(alias)
        entries[alias.adapter_id].aliases.append(aliases[alias.adapter_id, alias.alias])
    targets = select(AliasTarget).where(AliasTarget.tenant_id == tenant_id, AliasTarget.adapter_id.in_(ids))
    for target in session.scalars(targets):
        aliases[target.adapter_id, target.alias].targets.append((numbers[target.version_id], target.weight))
    for entry in aliases.values():
        entry.targets.sort()
    return list(entries.values())
