"""What people do to a version: retire, restore, retry, delete, quarantine, release. One transaction each.

A step that was taken already is no error and changes nothing. What cannot be done now is 409 `state_conflict` with the
reason. Work outside the transaction (the engine, the bytes) is left to jobs, enqueued in it; the caller wakes a worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from lorikeet_platform.audit.service import Action, record
from lorikeet_platform.auth.actor import ADMINISTRATOR, SYSTEM
from lorikeet_platform.clock import SECOND
from lorikeet_platform.db.tables import Adapter, AdapterVersion, Alias
from lorikeet_platform.errors import PlatformError, quoted
from lorikeet_platform.jobs.queue import enqueue
from lorikeet_platform.registry.aliasing.aliases import (
    AliasKey,
    Change,
    aliases_of,
    leave_version,
    lock_adapter,
    remove,
)
from lorikeet_platform.registry.audited import record_version
from lorikeet_platform.registry.catalogue import find_adapter, get_version
from lorikeet_platform.registry.versions.states import State, transition

# A request that was resolved just before the commit still starts; the engine hears of the retirement after it.
RETIRE_AFTER_US = 2 * SECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Which version a step is for, and who takes it when."""

    tenant_id: str
    adapter: str
    number: int
    actor: str
    now: int
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Moved:
    """A version after a step; a worker is to be woken for the jobs, if there are any."""

    version: AdapterVersion
    job_ids: tuple[str, ...] = ()


def retire(work: Session, step: Step, *, keep_us: int) -> Moved:
    """Take a ready version out of service; it can be restored for `keep_us`.

    Raises:
        PlatformError: not_found, state_conflict while an alias points at it or when it is in another state.
    """
    version = _locked(work, step)
    if version.state == "retired":
        return Moved(version)
    _check_state(version, "ready", "retired")
    _check_free(work, version)
    moved = _retire(work, version, step, purge_after=step.now + keep_us)
    record_version(work, version, "version.retire", actor=step.actor, now=step.now, reason=step.reason)
    return moved


def delete(work: Session, step: Step) -> Moved:
    """Take a version out of service if it is in it, and remove its bytes as soon as nothing runs on it.

    Raises:
        PlatformError: not_found, state_conflict while an alias points at it, while it is being validated, or when an
            administrator quarantined it and somebody else would delete it.
    """
    version = _locked(work, step)
    if version.state == "validating":
        raise PlatformError("state_conflict", "The version is being validated; wait for its verdict.")
    if version.state == "purged":
        return Moved(version)
    _check_may_go(version, step.actor)
    _check_free(work, version)
    moved = _purge_soon(work, version, step)
    record_version(work, version, "version.delete", actor=step.actor, now=step.now, reason=step.reason)
    return moved


def check_restorable(version: AdapterVersion, now: int, *, is_release: bool = False) -> bool:
    """Whether a version has to be brought back; False when it is ready already.

    Raises:
        PlatformError: state_conflict for every other state, and when the time it was kept is over.
    """
    if version.state == "ready":
        return False
    _check_state(version, "quarantined" if is_release else "retired", "released" if is_release else "restored")
    if version.purge_after is not None and version.purge_after <= now:
        raise PlatformError("state_conflict", "The version's files are being removed; it cannot be restored any more.")
    return True


def restore(work: Session, step: Step, *, is_release: bool = False) -> Moved:
    """Put a retired version (a quarantined one with `is_release`) into service; the engine has it warm already.

    Raises:
        PlatformError: not_found, and what `check_restorable` raises.
    """
    version = _locked(work, step)
    if check_restorable(version, step.now, is_release=is_release):
        transition(work, version, "ready", retired_at=None, retired_by=None, retire_reason=None, purge_after=None)
        action: Action = "version.release" if is_release else "version.restore"
        record_version(work, version, action, actor=step.actor, now=step.now)
    return Moved(version)


def retry(work: Session, step: Step) -> Moved:
    """Validate a version again whose validation failed for a reason of ours.

    Raises:
        PlatformError: not_found, state_conflict.
    """
    version = _locked(work, step)
    if version.state == "validating":
        return Moved(version)
    _check_state(version, "failed_internal", "validated again")
    transition(work, version, "validating", reject_detail=None, purge_after=None)
    record_version(work, version, "version.retry", actor=step.actor, now=step.now)
    job = enqueue(work, tenant_id=version.tenant_id, kind="validate", version_id=version.id, now=step.now)
    return Moved(version, (job.id,))


def lock_version(work: Session, tenant_id: str, version_id: str) -> AdapterVersion:
    """A version by its id, locked after its adapter, as every change of it does."""
    version = work.get_one(AdapterVersion, (tenant_id, version_id))
    lock_adapter(work, tenant_id, version.adapter_id)
    return work.get_one(
        AdapterVersion, (tenant_id, version_id), with_for_update={"key_share": True}, populate_existing=True
    )


def validate_again(work: Session, tenant_id: str, version_id: str) -> None:
    """The job that could not validate the version is about to be tried again.

    Raises:
        PlatformError: state_conflict when somebody has decided otherwise.
    """
    version = lock_version(work, tenant_id, version_id)
    if version.state != "validating":
        _check_state(version, "failed_internal", "validated again")
        transition(work, version, "validating", reject_detail=None, purge_after=None)


def quarantine(work: Session, step: Step) -> Moved:
    """Take a version out of service at once, whatever points at it, until an administrator releases or deletes it.

    Raises:
        PlatformError: not_found, state_conflict for a version that is not in service and was not.
    """
    version = _locked(work, step)
    if version.state == "quarantined":
        if step.actor == ADMINISTRATOR and version.retired_by != ADMINISTRATOR:
            version.retired_by, version.retire_reason = step.actor, step.reason  # damage heals, a decision does not
            record_version(work, version, "version.quarantine", actor=step.actor, now=step.now, reason=step.reason)
        return Moved(version)
    if version.state not in ("ready", "retired"):
        raise _wrong_state(version, "quarantined")
    return _quarantine(work, version, step.actor, step.reason, step.now)


def quarantine_damaged(work: Session, tenant_id: str, digest: str, *, now: int) -> tuple[str, ...]:
    """Quarantine every ready version of a tenant whose image is damaged; returns the jobs to wake workers for.

    Called for each request that met the damage: the first one does it, the others find nothing to do.
    """
    damaged = select(AdapterVersion).where(
        AdapterVersion.tenant_id == tenant_id, AdapterVersion.digest == digest, AdapterVersion.state == "ready"
    )
    jobs: list[str] = []
    for seen in work.scalars(damaged.order_by(AdapterVersion.adapter_id, AdapterVersion.number)).all():
        lock_adapter(work, tenant_id, seen.adapter_id)
        version = work.get_one(
            AdapterVersion, (tenant_id, seen.id), with_for_update={"key_share": True}, populate_existing=True
        )
        if version.state == "ready":
            moved = _quarantine(work, version, SYSTEM, "the stored adapter is damaged", now)
            jobs += moved.job_ids
    return tuple(jobs)


def delete_adapter(work: Session, tenant_id: str, name: str, *, actor: str, now: int) -> tuple[str, ...]:
    """Remove an adapter with everything it has; its name is free again. Returns the jobs to wake workers for.

    Raises:
        PlatformError: not_found, state_conflict while a version is being validated, or when an administrator
            quarantined one and somebody else would delete it.
    """
    adapter = find_adapter(work, tenant_id, name, for_update=True)
    versions = _versions_of(work, adapter)
    for version in versions:
        if version.state == "validating":
            raise PlatformError("state_conflict", f"Version {version.number} is being validated; wait for its verdict.")
        _check_may_go(version, actor)
    aliases = select(Alias.alias).where(Alias.tenant_id == tenant_id, Alias.adapter_id == adapter.id)
    for alias in work.scalars(aliases).all():
        change = Change(actor=actor, now=now, reason="the adapter was deleted")
        remove(work, AliasKey(tenant_id, adapter.id, alias), change)
    jobs: list[str] = []
    for version in versions:
        step = Step(
            tenant_id=tenant_id,
            adapter=name,
            number=version.number,
            actor=actor,
            now=now,
            reason="the adapter was deleted",
        )
        if version.state != "purged":
            jobs += _purge_soon(work, version, step).job_ids
    adapter.status, adapter.deleted_at = "deleted", now
    details = {"adapter_id": adapter.id, "versions": len(versions)}
    record(work, tenant_id=tenant_id, actor=actor, action="adapter.delete", subject=name, now=now, details=details)
    return tuple(jobs)


def has_twin(work: Session, version: AdapterVersion, state: State) -> bool:
    """Whether another version of the tenant in that state has the same content.

    With one that is ready, the engine must keep serving it. One that is being validated says what its content is as
    soon as it stores it.
    """
    twin = select(AdapterVersion.id).where(
        AdapterVersion.tenant_id == version.tenant_id,
        AdapterVersion.digest == version.digest,
        AdapterVersion.id != version.id,
        AdapterVersion.state == state,
    )
    return version.digest is not None and work.scalars(twin.limit(1)).first() is not None


def _retire(work: Session, version: AdapterVersion, step: Step, *, purge_after: int | None) -> Moved:
    transition(
        work,
        version,
        "retired",
        retired_at=step.now,
        retired_by=step.actor,
        retire_reason=step.reason,
        purge_after=purge_after,
    )
    return Moved(version, _tell_engine(work, version, step.now + RETIRE_AFTER_US, step.now))


def _purge_soon(work: Session, version: AdapterVersion, step: Step) -> Moved:
    """No alias points at the version. One that is ready is retired first; its time to be purged has then come."""
    if version.state == "ready":
        return _retire(work, version, step, purge_after=step.now)
    version.purge_after = step.now
    job = enqueue(work, tenant_id=version.tenant_id, kind="purge", version_id=version.id, now=step.now)
    work.flush()
    return Moved(version, (job.id,))


def _quarantine(work: Session, version: AdapterVersion, actor: str, reason: str | None, now: int) -> Moved:
    was_served = version.state == "ready"
    transition(work, version, "quarantined", retired_at=now, retired_by=actor, retire_reason=reason, purge_after=None)
    record_version(work, version, "version.quarantine", actor=actor, now=now, reason=reason)
    told = f"version {version.number} was quarantined" + (f": {reason}" if reason else "")
    leave_version(work, version, Change(actor=actor, now=now, reason=told[:500]))
    return Moved(version, _tell_engine(work, version, now, now) if was_served else ())


def _tell_engine(work: Session, version: AdapterVersion, run_after: int, now: int) -> tuple[str, ...]:
    job = enqueue(work, tenant_id=version.tenant_id, kind="retire", version_id=version.id, now=now, run_after=run_after)
    work.flush()
    return (job.id,)


def _locked(work: Session, step: Step) -> AdapterVersion:
    return get_version(work, step.tenant_id, step.adapter, step.number, for_update=True)


def _versions_of(work: Session, adapter: Adapter) -> Sequence[AdapterVersion]:
    mine = select(AdapterVersion).where(
        AdapterVersion.tenant_id == adapter.tenant_id, AdapterVersion.adapter_id == adapter.id
    )
    return work.scalars(mine.order_by(AdapterVersion.number).with_for_update(key_share=True)).all()


def _check_may_go(version: AdapterVersion, actor: str) -> None:
    """A quarantine ends with its version: so whoever it is meant for must not end it."""
    if version.state == "quarantined" and version.retired_by == ADMINISTRATOR != actor:
        raise PlatformError(
            "state_conflict",
            f"An administrator quarantined version {version.number}; it stays until an administrator releases or "
            "deletes it.",
        )


def _check_free(work: Session, version: AdapterVersion) -> None:
    if aliases := aliases_of(work, version):
        named = ", ".join(quoted(alias) for alias in aliases[:8])
        raise PlatformError("state_conflict", f"Aliases point at the version: {named}. Move them first.")


def _check_state(version: AdapterVersion, wanted: State, wish: str) -> None:
    if version.state != wanted:
        raise _wrong_state(version, wish)


def _wrong_state(version: AdapterVersion, wish: str) -> PlatformError:
    return PlatformError("state_conflict", f"The version is {version.state}; it cannot be {wish}.")
