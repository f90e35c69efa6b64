"""Ending keys: at the word of whoever may, or because one was found where it should not be.

A key ends with those that it was rotated from: whoever ends a key wants its lineage closed, not the secret of yesterday
left open. Keys that it made are told to whoever ends it, and end with it where that is asked for.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from lorikeet_platform.api_keys.authority import actor_now, check_reach
from lorikeet_platform.api_keys.service import get_key
from lorikeet_platform.audit.service import Action, record
from lorikeet_platform.auth.actor import ADMINISTRATOR, Actor
from lorikeet_platform.auth.key_format import is_well_formed, public_id_of
from lorikeet_platform.auth.notices import Notice, announce
from lorikeet_platform.auth.pepper import Pepper
from lorikeet_platform.auth.standing import is_live
from lorikeet_platform.db.locks import lock_tenant
from lorikeet_platform.db.tables import ApiKey, Tenant
from lorikeet_platform.errors import PlatformError


@dataclass(frozen=True, slots=True)
class Revoked:
    """`made`: keys that worked until now and were made with this one, with those it was rotated from, or with these."""

    key: ApiKey
    made: tuple[ApiKey, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """How a key ends."""

    actor: Actor
    action: Action
    reason: str | None
    now: int


def revoke_key(
    work: Session, key_id: str, *, actor: Actor, now: int, reason: str | None = None, with_made: bool = False
) -> Revoked:
    """The key, revoked, for every process to know; a second time changes nothing.

    Raises:
        PlatformError: not_found, insufficient_scope.
    """
    tenant = lock_tenant(work, actor.tenant_id)
    actor = actor_now(work, tenant, actor, now)
    key = get_key(work, actor.tenant_id, key_id)
    return _end(work, tenant, key, _End(actor=actor, action="key.revoke", reason=reason, now=now), with_made=with_made)


def report_leak(work: Session, pepper: Pepper, text: str, *, now: int, with_made: bool = False) -> Revoked:
    """Revoke the key that somebody found somewhere, whoever's it is.

    Raises:
        PlatformError: invalid_value for what is no key, not_found for one that is not ours.
    """
    if not is_well_formed(text):
        raise PlatformError("invalid_value", "That is not a whole API key.", "key")
    key = work.scalars(select(ApiKey).where(ApiKey.public_id == public_id_of(text))).one_or_none()
    if key is None or not hmac.compare_digest(pepper.mac(text, key.pepper_version), key.secret_mac):
        raise PlatformError("not_found", "There is no such key.", "key")
    tenant = lock_tenant(work, key.tenant_id)
    work.refresh(key)
    end = _End(actor=Actor(tenant.id, ADMINISTRATOR), action="key.leaked", reason="leaked", now=now)
    return _end(work, tenant, key, end, with_made=with_made)


def _end(work: Session, tenant: Tenant, key: ApiKey, end: _End, *, with_made: bool) -> Revoked:
    known = {other.id: other for other in _keys_of(work, tenant.id)}
    lineage = [key, *_predecessors(known, key)]
    made = tuple(other for other in _made_by(known, lineage) if is_live(other, end.now))
    for each in (key, *made) if with_made else (key,):
        check_reach(work, tenant, each, end.actor)
    ended = {each.id: each for each in lineage}
    if with_made:
        ended |= {each.id: each for one in made for each in (one, *_predecessors(known, one))}
    for _id, each in sorted(ended.items()):  # in the order in which their last use is written: nobody waits in a ring
        if each is key or is_live(each, end.now):
            _revoke(work, each, end, {} if each is key else {"with": key.id})
    return Revoked(key, made)


def _keys_of(work: Session, tenant_id: str) -> Iterable[ApiKey]:
    """Those that work no more are needed, too, for who made whom."""
    return work.scalars(select(ApiKey).where(ApiKey.tenant_id == tenant_id))


def _predecessors(known: Mapping[str, ApiKey], key: ApiKey) -> list[ApiKey]:
    """Those that it was rotated from, the latest first."""
    found: list[ApiKey] = []
    before = key.rotated_from
    while before is not None:
        found.append(known[before])
        before = known[before].rotated_from
    return found


def _made_by(known: Mapping[str, ApiKey], makers: Iterable[ApiKey]) -> list[ApiKey]:
    """Keys that `makers` made, and those that these made, without `makers`."""
    children: dict[str, list[ApiKey]] = {}
    for key in known.values():
        children.setdefault(key.created_by, []).append(key)
    found: dict[str, ApiKey] = {}
    to_ask = [key.id for key in makers]
    own = set(to_ask)
    while to_ask:
        for child in children.get(to_ask.pop(), ()):
            if child.id not in found:
                found[child.id] = child
                to_ask.append(child.id)
    return [key for id_, key in sorted(found.items()) if id_ not in own]


def _revoke(work: Session, key: ApiKey, end: _End, details: Mapping[str, str]) -> None:
    if key.status != "active":
        return
    key.status, key.revoked_at, key.revoke_reason = "revoked", end.now, end.reason
    work.flush()
    record(
        work,
        tenant_id=key.tenant_id,
        actor=end.actor.name,
        action=end.action,
        subject=key.id,
        now=end.now,
        details={"name": key.name, "reason": end.reason, **details},
    )
    announce(work, Notice(key.tenant_id, key.id, "key_revoked", end.now))
