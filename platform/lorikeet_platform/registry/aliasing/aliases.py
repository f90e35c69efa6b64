"""Where aliases point, and where they pointed before.

An alias points at one version, or at up to five with shares that add up to 100. Every change counts its revision up and
adds a line to its history, which outlives the alias: one that is made again goes on counting. All changes of an
adapter's aliases happen under a lock on the adapter's row.

Every revision knows the one that a plain rollback leads to from it: the one before, or, when it is a way back itself,
what was before the revision whose place it takes. So what was left by a rollback is not gone back to by the next one.

Rules of `live`: the first version that becomes ready sets it; after that it moves on request only, and one that was
removed stays away.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from sqlalchemy import delete, func, insert, select
from sqlalchemy.orm import Session

from lorikeet_platform.auth.actor import SYSTEM
from lorikeet_platform.db.tables import Adapter, AdapterVersion, Alias, AliasChange, AliasTarget
from lorikeet_platform.errors import PlatformError, quoted
from lorikeet_platform.registry.audited import record_alias
from lorikeet_platform.registry.names import DEFAULT_ALIAS

WHOLE = 100  # percent
_NO_SYNC = {"synchronize_session": False}


@dataclass(frozen=True, slots=True)
class AliasKey:
    tenant_id: str
    adapter_id: str
    alias: str


@dataclass(frozen=True, slots=True)
class Target:
    """One version of the alias's adapter with its share in percent."""

    version_id: str
    number: int
    weight: int = WHOLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointing:
    """What one revision of an alias says; without targets the alias is gone."""

    targets: tuple[Target, ...]
    sticky: str = "none"
    guard: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Who changes an alias, why and when.

    Attributes:
        expected: the revision that the change was decided on, 0 = no such alias; None = whatever it is now.
        in_place_of: for a way back, the revision whose place the new one takes: the one that it repeats, or the one
            that it leaves.
        action: what the change is called among the audit events; a removal has a name of its own.
    """

    actor: str
    now: int
    reason: str | None = None
    expected: int | None = None
    in_place_of: int | None = None
    action: Literal["alias.set", "alias.rollback", "alias.guard_rollback"] = "alias.set"


def lock_adapter(work: Session, tenant_id: str, adapter_id: str) -> Adapter:
    """The adapter's row, locked: nobody else changes its versions or aliases until the transaction ends."""
    return work.get_one(Adapter, (tenant_id, adapter_id), with_for_update={"key_share": True}, populate_existing=True)


def find_alias(work: Session, key: AliasKey) -> Alias:
    """Raises PlatformError(not_found)."""
    alias = work.get(Alias, (key.tenant_id, key.adapter_id, key.alias), populate_existing=True)
    if alias is None:
        raise alias_not_found(key.alias)
    return alias


def targets_of(work: Session, key: AliasKey) -> tuple[Target, ...]:
    """Where the alias points now, by version number; empty when there is no such alias."""
    rows = work.execute(
        select(AliasTarget.version_id, AdapterVersion.number, AliasTarget.weight)
        .join(
            AdapterVersion,
            (AdapterVersion.tenant_id == AliasTarget.tenant_id) & (AdapterVersion.id == AliasTarget.version_id),
        )
        .where(
            AliasTarget.tenant_id == key.tenant_id,
            AliasTarget.adapter_id == key.adapter_id,
            AliasTarget.alias == key.alias,
        )
        .order_by(AdapterVersion.number)
    )
    return tuple(Target(row.version_id, row.number, row.weight) for row in rows)


def aliases_of(work: Session, version: AdapterVersion) -> Sequence[str]:
    """The aliases that point at a version."""
    mine = select(AliasTarget.alias).where(
        AliasTarget.tenant_id == version.tenant_id,
        AliasTarget.adapter_id == version.adapter_id,
        AliasTarget.version_id == version.id,
    )
    return work.scalars(mine.order_by(AliasTarget.alias)).all()


def has_aliases(work: Session, adapter: Adapter) -> bool:
    """Whether anything points at a version of the adapter."""
    mine = select(Alias.alias).where(Alias.tenant_id == adapter.tenant_id, Alias.adapter_id == adapter.id)
    return work.scalars(mine.limit(1)).first() is not None


def history_of(work: Session, key: AliasKey) -> Sequence[AliasChange]:
    """Every revision, newest first. Raises PlatformError(not_found) for an alias that never was."""
    changes = work.scalars(_history(key).order_by(AliasChange.revision.desc())).all()
    if not changes:
        raise alias_not_found(key.alias)
    return changes


def check_expected(work: Session, key: AliasKey, expected: int | None) -> None:
    """Raises PlatformError(revision_conflict) when the alias is not at the revision `expected`."""
    if expected is None:
        return
    alias = work.get(Alias, (key.tenant_id, key.adapter_id, key.alias), populate_existing=True)
    found = 0 if alias is None else alias.revision
    if found != expected:
        stands = f"is at revision {found}" if found else "does not exist"
        raise PlatformError("revision_conflict", f"The alias {quoted(key.alias)} {stands}.", "If-Match")


def point(work: Session, key: AliasKey, pointing: Pointing, change: Change) -> Alias:
    """Make `key` say `pointing` from now on; creates the alias when it is missing.

    Raises:
        PlatformError: revision_conflict; state_conflict naming the targets that are not ready.
    """
    lock_adapter(work, key.tenant_id, key.adapter_id)
    check_expected(work, key, change.expected)
    check_ready(work, key, pointing.targets)
    revision = _record(work, key, pointing, change)
    alias = work.get(Alias, (key.tenant_id, key.adapter_id, key.alias))
    if alias is None:
        alias = Alias(tenant_id=key.tenant_id, adapter_id=key.adapter_id, alias=key.alias)
        work.add(alias)
    alias.revision, alias.sticky = revision, pointing.sticky
    alias.guard = None if pointing.guard is None else dict(pointing.guard)
    alias.updated_by, alias.updated_at = change.actor, change.now
    work.flush()
    work.execute(_targets(key), execution_options=_NO_SYNC)
    place = {"tenant_id": key.tenant_id, "adapter_id": key.adapter_id, "alias": key.alias}
    shares = [place | {"version_id": target.version_id, "weight": target.weight} for target in pointing.targets]
    work.execute(insert(AliasTarget), shares)
    return alias


def remove(work: Session, key: AliasKey, change: Change) -> None:
    """End the alias; its history gets a last line without targets.

    Raises:
        PlatformError: not_found, revision_conflict.
    """
    lock_adapter(work, key.tenant_id, key.adapter_id)
    check_expected(work, key, change.expected)
    alias = find_alias(work, key)
    _record(work, key, Pointing(targets=()), change)
    work.execute(_targets(key), execution_options=_NO_SYNC)
    work.delete(alias)
    work.flush()


def ways_back(work: Session, key: AliasKey) -> Iterator[AliasChange]:
    """The revisions that rollbacks lead to, one after the other, from where the alias is now.

    Raises:
        PlatformError: not_found.
    """
    change = _change(work, key, find_alias(work, key).revision)
    while change is not None and change.previous is not None:
        change = _change(work, key, change.previous)
        if change is not None and change.targets:
            yield change


def earlier(work: Session, key: AliasKey, to_revision: int | None) -> AliasChange:
    """The revision `to_revision` or, with None, the one to go back to: it says something else than the alias says now.

    Raises:
        PlatformError: not_found for an alias or revision that is not there, state_conflict when there is nothing to go
            back to.
    """
    alias = find_alias(work, key)
    if to_revision is None:
        now_said = Pointing(targets=targets_of(work, key), sticky=alias.sticky, guard=alias.guard)
        found = next((change for change in ways_back(work, key) if pointing_of(change) != now_said), None)
        if found is None:
            raise PlatformError("state_conflict", f"The alias {quoted(key.alias)} has no revision to go back to.")
        return found
    change = _change(work, key, to_revision)
    if change is None:
        raise PlatformError("not_found", f"The alias {quoted(key.alias)} has no revision {to_revision}.", "to_revision")
    if not change.targets:
        raise PlatformError(
            "state_conflict", f"In revision {to_revision} the alias {quoted(key.alias)} was removed.", "to_revision"
        )
    return change


def point_when_ready(work: Session, version: AdapterVersion, *, now: int) -> None:
    """Do for the adapter's aliases what was asked when `version` was pushed; it has just become ready.

    Verdicts may come in another order than pushes: an older version that is ready late takes nothing back from a newer.
    """
    lock_adapter(work, version.tenant_id, version.adapter_id)
    live = AliasKey(version.tenant_id, version.adapter_id, DEFAULT_ALIAS)
    if _newest_revision(work, live) is None:
        point(work, live, _wholly(version), Change(actor=SYSTEM, now=now, reason="the first version became ready"))
    wanted = version.alias_when_ready
    if wanted is not None:
        key = AliasKey(version.tenant_id, version.adapter_id, wanted)
        if all(target.number < version.number for target in targets_of(work, key)):
            point(
                work, key, _wholly(version), Change(actor=version.created_by, now=now, reason="asked for by the push")
            )


def point_wholly_at(work: Session, version: AdapterVersion, alias: str, change: Change) -> None:
    """Let `alias` mean nothing but `version`, because somebody asks for it now; no revision when it does already.

    Raises:
        PlatformError: state_conflict when the version is not ready.
    """
    lock_adapter(work, version.tenant_id, version.adapter_id)
    key = AliasKey(version.tenant_id, version.adapter_id, alias)
    if targets_of(work, key) != (Target(version.id, version.number),):
        point(work, key, _wholly(version), change)


def leave_version(work: Session, version: AdapterVersion, change: Change) -> None:
    """No alias points at `version` any more: each goes back to the last revision that is healthy without it.

    Where there is none, the healthy target with the largest share gets everything, and without one the alias ends.
    The version must not be ready any more.
    """
    lock_adapter(work, version.tenant_id, version.adapter_id)
    for name in aliases_of(work, version):
        key = AliasKey(version.tenant_id, version.adapter_id, name)
        left = find_alias(work, key).revision
        healthy = _last_healthy(work, key)
        rest = _largest_healthy(work, key)
        if healthy is not None:
            back = replace(change, in_place_of=healthy.revision, action="alias.rollback")
            point(work, key, pointing_of(healthy), back)
        elif rest is not None:
            point(work, key, rest, replace(change, in_place_of=left))
        else:
            remove(work, key, replace(change, in_place_of=left))


def check_ready(work: Session, key: AliasKey, targets: Iterable[Target]) -> None:
    """Raises PlatformError(state_conflict) naming the versions among `targets` that cannot serve."""
    wanted = {target.version_id: target.number for target in targets}
    ready = _ready_among(work, key, wanted)
    missing = sorted(number for version_id, number in wanted.items() if version_id not in ready)
    if missing:
        raise not_ready(missing)


def not_ready(numbers: Sequence[int]) -> PlatformError:
    listed = ", ".join(str(number) for number in numbers)
    plural = "s" if len(numbers) > 1 else ""
    return PlatformError("state_conflict", f"Not ready: version{plural} {listed}.", "targets")


def alias_not_found(alias: str) -> PlatformError:
    return PlatformError("not_found", f"There is no alias {quoted(alias)}.")


def pointing_of(change: AliasChange) -> Pointing:
    """A line of history as something an alias can be made to say again."""
    targets = tuple(Target(item["version_id"], item["number"], item["weight"]) for item in change.targets)
    return Pointing(targets=targets, sticky=change.sticky, guard=change.guard)


def _last_healthy(work: Session, key: AliasKey) -> AliasChange | None:
    changes: Sequence[AliasChange] = work.scalars(_history(key).order_by(AliasChange.revision.desc())).all()
    for change in changes:
        wanted = [target["version_id"] for target in change.targets]
        if wanted and len(_ready_among(work, key, wanted)) == len(wanted):
            return change
    return None


def _largest_healthy(work: Session, key: AliasKey) -> Pointing | None:
    targets = targets_of(work, key)
    ready = _ready_among(work, key, [target.version_id for target in targets])
    healthy = [target for target in targets if target.version_id in ready]
    if not healthy:
        return None
    largest = max(healthy, key=lambda target: target.weight)
    return Pointing(targets=(Target(largest.version_id, largest.number),))


def _ready_among(work: Session, key: AliasKey, version_ids: Iterable[str]) -> set[str]:
    mine = select(AdapterVersion.id).where(
        AdapterVersion.tenant_id == key.tenant_id,
        AdapterVersion.adapter_id == key.adapter_id,
        AdapterVersion.id.in_(list(version_ids)),
        AdapterVersion.state == "ready",
    )
    return set(work.scalars(mine))


def _wholly(version: AdapterVersion) -> Pointing:
    return Pointing(targets=(Target(version.id, version.number),))


def _history(key: AliasKey) -> Any:
    return select(AliasChange).where(
        AliasChange.tenant_id == key.tenant_id,
        AliasChange.adapter_id == key.adapter_id,
        AliasChange.alias == key.alias,
    )


def _targets(key: AliasKey) -> Any:
    return delete(AliasTarget).where(
        AliasTarget.tenant_id == key.tenant_id,
        AliasTarget.adapter_id == key.adapter_id,
        AliasTarget.alias == key.alias,
    )


def _change(work: Session, key: AliasKey, revision: int) -> AliasChange | None:
    return work.get(AliasChange, (key.tenant_id, key.adapter_id, key.alias, revision))


def _newest_revision(work: Session, key: AliasKey) -> int | None:
    newest: int | None = work.scalar(_history(key).with_only_columns(func.max(AliasChange.revision)))
    return newest


def _record(work: Session, key: AliasKey, pointing: Pointing, change: Change) -> int:
    """Write the next line of the history; returns its revision."""
    newest = _newest_revision(work, key)
    replaced = None if change.in_place_of is None else _change(work, key, change.in_place_of)
    revision = (newest or 0) + 1
    work.add(
        AliasChange(
            tenant_id=key.tenant_id,
            adapter_id=key.adapter_id,
            alias=key.alias,
            revision=revision,
            targets=[
                {"version_id": target.version_id, "number": target.number, "weight": target.weight}
                for target in pointing.targets
            ],
            sticky=pointing.sticky,
            guard=None if pointing.guard is None else dict(pointing.guard),
            actor=change.actor,
            reason=change.reason,
            previous=newest if replaced is None else replaced.previous,
            at=change.now,
        )
    )
    record_alias(
        work,
        key.tenant_id,
        key.adapter_id,
        key.alias,
        change.action if pointing.targets else "alias.remove",
        actor=change.actor,
        now=change.now,
        revision=revision,
        targets={str(target.number): target.weight for target in pointing.targets} or None,
        reason=change.reason,
    )
    work.flush()
    return revision
