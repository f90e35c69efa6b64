"""Who changes keys, and what they may do now: read in the transaction of the change, never from a gateway's memory.

Every change of a tenant's keys locks the tenant's row first. What is read here stays so until the change is committed:
no key makes another, or ends one, once its own end is committed.
"""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_network
from typing import cast

from sqlalchemy.orm import Session

from lorikeet_platform.api_keys.minting import Grant, check_grant, check_limited
from lorikeet_platform.auth.actor import Actor
from lorikeet_platform.auth.scopes import Scope
from lorikeet_platform.auth.standing import key_now
from lorikeet_platform.db.tables import ApiKey, Tenant
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.limits.stored import key_figures, limits_of_key


def actor_now(work: Session, tenant: Tenant, actor: Actor, now: int) -> Actor:
    """`actor` with what its key may do as of now; `tenant` is locked.

    Raises:
        PlatformError: invalid_api_key, tenant_suspended, insufficient_scope.
    """
    if actor.key is None:
        return actor
    key = key_now(work, tenant, actor.key.key_id, now)
    if "keys:write" not in key.scopes or not tenant.keys_make_keys:
        raise PlatformError("insufficient_scope", "The API key lacks the scope keys:write.")
    grant = grant_of(key)
    principal = replace(
        actor.key,
        tenant_status=tenant.status,
        scopes=grant.scopes,
        allowed_adapters=grant.allowed_adapters,
        networks=tuple(map(ip_network, grant.ip_allowlist or ())),
        limits=limits_of_key(work, tenant, key.subject_id),
        expires_at=grant.expires_at,
    )
    return replace(actor, key=principal)


def check_reach(work: Session, tenant: Tenant, key: ApiKey, actor: Actor, grant: Grant | None = None) -> None:
    """Whether `actor` could have made `key` as it is, or as `grant` has it: only then may it change or end it.

    Raises:
        PlatformError: insufficient_scope.
    """
    has_already = "keys:write" in key.scopes  # without effect while the tenant's setting is off
    check_grant(actor.key, grant or grant_of(key), keys_make_keys=tenant.keys_make_keys or has_already)
    check_limited(actor.key, key_figures(work, key.tenant_id, key.subject_id))


def grant_of(key: ApiKey) -> Grant:
    return Grant(
        scopes=frozenset(cast(list[Scope], key.scopes)),
        allowed_adapters=None if key.allowed_adapters is None else frozenset(key.allowed_adapters),
        ip_allowlist=None if key.ip_allowlist is None else tuple(key.ip_allowlist),
        expires_at=key.expires_at,
    )
