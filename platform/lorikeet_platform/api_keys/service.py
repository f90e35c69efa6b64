"""Rules and queries of API keys. The secret leaves twice at most: from `create_key`, and a new one from `rotate_key`.

A key that is rotated keeps its name, scopes and limits under a new secret, as the next of its lineage: budgets, rates
and limits hang on the lineage, and go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from sqlalchemy import func, or_, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from lorikeet_platform.api_keys.authority import actor_now, check_reach, grant_of
from lorikeet_platform.api_keys.minting import (
    UNSAID,
    Grant,
    Wanted,
    as_maker,
    check_grant,
    check_limits,
    check_new_budget,
    field_beyond,
    limits_as_maker,
    ordered,
)
from lorikeet_platform.audit.service import Action, record
from lorikeet_platform.auth.actor import ADMINISTRATOR, Actor
from lorikeet_platform.auth.key_format import new_key
from lorikeet_platform.auth.notices import Notice, announce
from lorikeet_platform.auth.pepper import Pepper
from lorikeet_platform.auth.standing import is_live
from lorikeet_platform.clock import HOUR, unix_seconds
from lorikeet_platform.db.conflicts import add_or_raise, is_collision
from lorikeet_platform.db.locks import lock_tenant
from lorikeet_platform.db.tables import Adapter, ApiKey, Tenant
from lorikeet_platform.errors import PlatformError, quoted
from lorikeet_platform.ids import new_id
from lorikeet_platform.limits.effective import COUNTED_BY_KEY
from lorikeet_platform.limits.service import Changes, checked, set_key_limits, write_key_limits
from lorikeet_platform.limits.stored import limits_of_tenant
from lorikeet_platform.registry.catalogue import find_adapter

LONGEST_OVERLAP_HOURS: Final = 168
NOTHING_SAID: Final = Wanted()


def create_key(
    work: Session,
    pepper: Pepper,
    *,
    tenant_id: str,
    name: str,
    now: int,
    wanted: Wanted = NOTHING_SAID,
    limits: Changes | None = None,
    actor: Actor | None = None,
) -> tuple[ApiKey, str]:
    """A new active key and its text. Locks the tenant, so that of two creations at the limit only one passes.

    Raises:
        PlatformError: name_conflict (a name is free again once its key is revoked), key_quota_exceeded,
            insufficient_scope, invalid_value, not_found for an adapter.
    """
    tenant = lock_tenant(work, tenant_id)
    actor = actor_now(work, tenant, actor or Actor(tenant_id, ADMINISTRATOR), now)
    given = checked(limits or {}, COUNTED_BY_KEY)
    check_limits(actor.key, given)
    check_new_budget(actor.key)
    grant = _apply(work, tenant_id, as_maker(actor.key), wanted, now)
    check_grant(actor.key, grant, keys_make_keys=tenant.keys_make_keys)
    _check_quota(work, tenant, now)
    key, text = _new_row(pepper, tenant_id=tenant_id, name=name, grant=grant, created_by=actor.name, now=now)
    add_or_raise(work, key, _name_taken(name))
    write_key_limits(work, key, limits_as_maker(actor.key, given), actor=actor.name, now=now)
    _record(work, key, actor, "key.create", now, {**_shown(name, grant), "limits": dict(given)})
    return key, text


def list_keys(work: Session, tenant_id: str) -> list[ApiKey]:
    """All keys of a tenant, oldest first, revoked ones included."""
    return list(work.scalars(select(ApiKey).where(ApiKey.tenant_id == tenant_id).order_by(ApiKey.id)))


def get_key(work: Session, tenant_id: str, key_id: str) -> ApiKey:
    """Raises PlatformError(not_found), for another tenant's key as for none."""
    key = work.get(ApiKey, (tenant_id, key_id))
    if key is None:
        raise PlatformError("not_found", f"There is no key {quoted(key_id)}.", "id")
    return key


def update_key(work: Session, key_id: str, wanted: Wanted, *, actor: Actor, now: int) -> ApiKey:
    """Change what is said of the key; one that was rotated can be narrowed alone.

    Raises:
        PlatformError: not_found, state_conflict, name_conflict, insufficient_scope, invalid_value.
    """
    tenant = lock_tenant(work, actor.tenant_id)
    actor = actor_now(work, tenant, actor, now)
    key = get_key(work, tenant.id, key_id)
    grant = _apply(work, tenant.id, grant_of(key), wanted, now)
    _check_change(key, grant, wanted, now)
    check_reach(work, tenant, key, actor)
    check_reach(work, tenant, key, actor, grant)
    name = key.name if wanted.name is UNSAID else wanted.name
    before, after = _shown(key.name, grant_of(key)), _shown(name, grant)
    changed = {field: value for field, value in after.items() if value != before[field]}
    if not changed:
        return key
    key.name, key.expires_at, key.scopes = name, grant.expires_at, cast(list[str], ordered(grant.scopes))
    key.allowed_adapters, key.ip_allowlist = _sorted(grant.allowed_adapters), _listed(grant.ip_allowlist)
    try:
        work.flush()
    except IntegrityError as error:
        if not is_collision(error):
            raise
        raise _name_taken(name) from None
    _record(work, key, actor, "key.update", now, changed)
    announce(work, Notice(key.tenant_id, key.id, "changed", now))
    return key


def rotate_key(
    work: Session, pepper: Pepper, key_id: str, *, overlap_hours: int, actor: Actor, now: int
) -> tuple[ApiKey, str]:
    """The next key of the lineage and its text; the old one works for `overlap_hours` more, and none before it.

    Raises:
        PlatformError: not_found, state_conflict, insufficient_scope.
    """
    tenant = lock_tenant(work, actor.tenant_id)
    actor = actor_now(work, tenant, actor, now)
    old = get_key(work, tenant.id, key_id)
    _check_in_use(old, now)
    grant = grant_of(old)
    check_reach(work, tenant, old, actor)
    if actor.key is not None and actor.key.subject_id != old.subject_id:
        check_new_budget(actor.key)
    before = _in_overlap(work, old, now)
    for key in before:
        key.expires_at = now
    ends_at = now + overlap_hours * HOUR
    old.replaced_at = now
    old.expires_at = ends_at if old.expires_at is None else min(old.expires_at, ends_at)
    work.flush()
    key, text = _new_row(pepper, tenant_id=old.tenant_id, name=old.name, grant=grant, created_by=actor.name, now=now)
    key.subject_id, key.rotated_from = old.subject_id, old.id
    work.add(key)
    work.flush()
    details = {"rotated_from": old.id, "overlap_hours": overlap_hours}
    _record(work, key, actor, "key.rotate", now, details)
    for ending in (*before, old):
        announce(work, Notice(old.tenant_id, ending.id, "changed", now))
    return key, text


def change_limits(work: Session, key_id: str, changes: Changes, *, actor: Actor, now: int) -> ApiKey:
    """Set limits of the key's lineage.

    Raises:
        PlatformError: not_found, invalid_value, insufficient_scope.
    """
    tenant = lock_tenant(work, actor.tenant_id)
    actor = actor_now(work, tenant, actor, now)
    key = get_key(work, tenant.id, key_id)
    check_reach(work, tenant, key, actor)
    check_limits(actor.key, checked(changes, COUNTED_BY_KEY))
    set_key_limits(work, key, changes, actor=actor.name, now=now)
    return key


def adapter_names(work: Session, tenant_id: str, keys: Iterable[ApiKey]) -> dict[str, str]:
    """Names by id of those adapters that `keys` are limited to and that still exist."""
    ids = {adapter_id for key in keys for adapter_id in key.allowed_adapters or ()}
    if not ids:
        return {}
    mine = select(Adapter.id, Adapter.name).where(
        Adapter.tenant_id == tenant_id, Adapter.id.in_(ids), Adapter.status == "active"
    )
    return {row.id: row.name for row in work.execute(mine)}


def _apply(work: Session, tenant_id: str, grant: Grant, wanted: Wanted, now: int) -> Grant:
    """`grant` with what `wanted` says. Raises PlatformError: not_found, invalid_value."""
    if wanted.scopes is not UNSAID:
        grant = replace(grant, scopes=frozenset(wanted.scopes))
    if wanted.allowed_adapters is not UNSAID:
        names: Sequence[str] | None = wanted.allowed_adapters
        ids = None if names is None else frozenset(find_adapter(work, tenant_id, name).id for name in names)
        grant = replace(grant, allowed_adapters=ids)
    if wanted.ip_allowlist is not UNSAID:
        networks = wanted.ip_allowlist
        grant = replace(grant, ip_allowlist=None if networks is None else tuple(dict.fromkeys(networks)))
    if wanted.expires_at is not UNSAID:
        if wanted.expires_at is not None and wanted.expires_at <= now:
            raise PlatformError("invalid_value", "expires_at: lies in the past.", "expires_at")
        grant = replace(grant, expires_at=wanted.expires_at)
    return grant


def _check_quota(work: Session, tenant: Tenant, now: int) -> None:
    """A key and its successor count as one. Raises PlatformError(key_quota_exceeded)."""
    limit = limits_of_tenant(work, tenant)["keys"]
    in_use = (
        ApiKey.tenant_id == tenant.id,
        ApiKey.status == "active",
        ApiKey.replaced_at.is_(None),
        or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > now),
    )
    if (work.scalar(select(func.count()).where(*in_use)) or 0) >= limit.value:
        raise PlatformError("key_quota_exceeded", f"The {limit.origin} allows {limit.value} keys in use.")


def _check_in_use(key: ApiKey, now: int) -> None:
    if key.replaced_at is not None or not is_live(key, now):
        state = "revoked" if key.status != "active" else "rotated" if key.replaced_at is not None else "expired"
        raise PlatformError("state_conflict", f"The key is {state}.", "id")


def _check_change(key: ApiKey, grant: Grant, wanted: Wanted, now: int) -> None:
    """A key that was rotated works on for a while: until then it can be narrowed, and nothing else."""
    narrows = wanted.name is UNSAID and field_beyond(grant, grant_of(key)) is None
    if key.replaced_at is None or not is_live(key, now) or not narrows:
        _check_in_use(key, now)


def _in_overlap(work: Session, key: ApiKey, now: int) -> Sequence[ApiKey]:
    """Keys of the lineage that were rotated and work on."""
    mine = (
        ApiKey.tenant_id == key.tenant_id,
        ApiKey.subject_id == key.subject_id,
        ApiKey.status == "active",
        ApiKey.replaced_at.is_not(None),
        ApiKey.expires_at > now,
    )
    return work.scalars(select(ApiKey).where(*mine)).all()


def _new_row(
    pepper: Pepper, *, tenant_id: str, name: str, grant: Grant, created_by: str, now: int
) -> tuple[ApiKey, str]:
    made, key_id = new_key(), new_id("key")
    key = ApiKey(
        tenant_id=tenant_id,
        id=key_id,
        subject_id=key_id,
        scopes=ordered(grant.scopes),
        allowed_adapters=_sorted(grant.allowed_adapters),
        ip_allowlist=_listed(grant.ip_allowlist),
        expires_at=grant.expires_at,
        created_by=created_by,
        public_id=made.public_id,
        secret_mac=pepper.mac(made.text, pepper.current),
        pepper_version=pepper.current,
        name=name,
        hint=made.hint,
        status="active",
        created_at=now,
    )
    return key, made.text


def _record(work: Session, key: ApiKey, actor: Actor, action: Action, now: int, details: dict[str, Any]) -> None:
    record(work, tenant_id=key.tenant_id, actor=actor.name, action=action, subject=key.id, now=now, details=details)


def _shown(name: str, grant: Grant) -> dict[str, Any]:
    return {
        "name": name,
        "scopes": ordered(grant.scopes),
        "allowed_adapters": _sorted(grant.allowed_adapters),
        "ip_allowlist": _listed(grant.ip_allowlist),
        "expires_at": None if grant.expires_at is None else unix_seconds(grant.expires_at),
    }


def _sorted(ids: frozenset[str] | None) -> list[str] | None:
    return None if ids is None else sorted(ids)


def _listed(networks: tuple[str, ...] | None) -> list[str] | None:
    return None if networks is None else list(networks)


def _name_taken(name: str) -> PlatformError:
    return PlatformError("name_conflict", f"The tenant has an active key {quoted(name)}.", "name")
