"""API keys over HTTP: transport only, the same routes on both ports, and two that are of one port alone."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request
from sqlalchemy.orm import Session

from lorikeet_platform.accounts.access import administrator
from lorikeet_platform.api_keys import revoking, service
from lorikeet_platform.api_keys.schemas import (
    Key,
    KeyCreate,
    KeyList,
    KeyPatch,
    KeyRevoke,
    KeyRotate,
    KeyWithSecret,
    LeakedKey,
    RevokedKey,
)
from lorikeet_platform.auth.actor import FindActor
from lorikeet_platform.auth.scopes import needs
from lorikeet_platform.context import get_context
from lorikeet_platform.db.tables import ApiKey, Tenant
from lorikeet_platform.limits.schemas import Limits, LimitsPut
from lorikeet_platform.limits.service import key_limits
from lorikeet_platform.registry.acting import Acting, acting_as
from lorikeet_platform.web.access import Caller, tenant_key
from lorikeet_platform.web.json_body import StrictJsonRoute
from lorikeet_platform.web.surplus import KnownQuery, WantedBody

KeyId = Annotated[str, Path(alias="id")]


def key_routes(prefix: str, find_actor: FindActor) -> APIRouter:
    """A tenant's keys under `prefix`, for whom `find_actor` finds."""
    router = APIRouter(
        prefix=f"{prefix}/keys",
        tags=["keys"],
        route_class=StrictJsonRoute,
        dependencies=[acting_as(find_actor), KnownQuery, WantedBody],
    )
    router.get("", operation_id="list_keys")(list_keys)
    router.post("", operation_id="create_key", status_code=201)(create_key)
    router.get("/{id}", operation_id="get_key")(get_key)
    router.patch("/{id}", operation_id="update_key")(update_key)
    router.post("/{id}/rotate", operation_id="rotate_key", status_code=201)(rotate_key)
    router.post("/{id}/revoke", operation_id="revoke_key")(revoke_key)
    router.get("/{id}/limits", operation_id="get_key_limits")(get_key_limits)
    router.put("/{id}/limits", operation_id="set_key_limits")(set_key_limits)
    return router


def own_key_routes(prefix: str) -> APIRouter:
    """What a key may know of itself; before `key_routes`, which would take `self` for an id."""
    router = APIRouter(
        prefix=f"{prefix}/keys",
        tags=["keys"],
        route_class=StrictJsonRoute,
        dependencies=[Depends(tenant_key), KnownQuery, WantedBody],
    )
    router.get("/self", operation_id="get_own_key")(get_own_key)
    return router


leak_router = APIRouter(
    prefix="/admin/v1",
    tags=["keys"],
    route_class=StrictJsonRoute,
    dependencies=[Depends(administrator), KnownQuery, WantedBody],
)


@leak_router.post("/leaked_keys", operation_id="report_leaked_key")
def report_leaked_key(body: LeakedKey, request: Request) -> RevokedKey:
    """Revoke a key that was found where it should not be, whosever it is, and the keys that it was rotated from."""
    context = get_context(request)
    with context.db.platform.unit_of_work() as work:
        revoked = revoking.report_leak(work, context.pepper, body.key, now=context.clock(), with_made=body.with_made)
        return _revoked(work, revoked)


@needs()
def get_own_key(caller: Caller, request: Request) -> Key:
    """The key that asks."""
    with get_context(request).db.tenant(caller.tenant_id).read() as work:
        return _key(work, service.get_key(work, caller.tenant_id, caller.key_id))


@needs("keys:read")
def list_keys(actor: Acting, request: Request) -> KeyList:
    """All keys, oldest first, revoked ones included."""
    with get_context(request).db.tenant(actor.tenant_id).read() as work:
        keys = service.list_keys(work, actor.tenant_id)
        names = service.adapter_names(work, actor.tenant_id, keys)
    return KeyList(data=[Key.of(key, names) for key in keys])


@needs("keys:write")
def create_key(body: KeyCreate, actor: Acting, request: Request) -> KeyWithSecret:
    """Create a key and return its secret, once."""
    context = get_context(request)
    with context.db.tenant(actor.tenant_id).unit_of_work() as work:
        key, secret = service.create_key(
            work,
            context.pepper,
            tenant_id=actor.tenant_id,
            name=body.name,
            wanted=body.wanted(),
            limits=body.changes,
            actor=actor,
            now=context.clock(),
        )
        return KeyWithSecret.with_secret(key, service.adapter_names(work, actor.tenant_id, [key]), secret)


@needs("keys:read")
def get_key(key_id: KeyId, actor: Acting, request: Request) -> Key:
    with get_context(request).db.tenant(actor.tenant_id).read() as work:
        return _key(work, service.get_key(work, actor.tenant_id, key_id))


@needs("keys:write")
def update_key(key_id: KeyId, body: KeyPatch, actor: Acting, request: Request) -> Key:
    """Change what is said in the body; a key can make no key more than itself."""
    context = get_context(request)
    with context.db.tenant(actor.tenant_id).unit_of_work() as work:
        return _key(work, service.update_key(work, key_id, body.wanted(), actor=actor, now=context.clock()))


@needs("keys:write")
def rotate_key(key_id: KeyId, body: KeyRotate, actor: Acting, request: Request) -> KeyWithSecret:
    """Create the key's successor and return its secret, once; the old key ends after the overlap."""
    context = get_context(request)
    with context.db.tenant(actor.tenant_id).unit_of_work() as work:
        key, secret = service.rotate_key(
            work, context.pepper, key_id, overlap_hours=body.overlap_hours, actor=actor, now=context.clock()
        )
        return KeyWithSecret.with_secret(key, service.adapter_names(work, actor.tenant_id, [key]), secret)


@needs("keys:write")
def revoke_key(key_id: KeyId, body: KeyRevoke, actor: Acting, request: Request) -> RevokedKey:
    """The key stops working at once and its running answers end: here now, in other processes within a second.

    So do those that it was rotated from, and with `with_made` those that were made with it.
    """
    context = get_context(request)
    with context.db.tenant(actor.tenant_id).unit_of_work() as work:
        revoked = revoking.revoke_key(
            work, key_id, actor=actor, reason=body.reason, now=context.clock(), with_made=body.with_made
        )
        return _revoked(work, revoked)


@needs("keys:read")
def get_key_limits(key_id: KeyId, actor: Acting, request: Request) -> Limits:
    """What is in force for the key, and who said so."""
    with get_context(request).db.tenant(actor.tenant_id).read() as work:
        return _limits(work, service.get_key(work, actor.tenant_id, key_id))


@needs("keys:write")
def set_key_limits(key_id: KeyId, body: LimitsPut, actor: Acting, request: Request) -> Limits:
    """Set limits of the key and of its successors; dimensions that are not named stay."""
    context = get_context(request)
    with context.db.tenant(actor.tenant_id).unit_of_work() as work:
        key = service.change_limits(work, key_id, body.changes, actor=actor, now=context.clock())
        return _limits(work, key)


def _key(work: Session, key: ApiKey) -> Key:
    return Key.of(key, service.adapter_names(work, key.tenant_id, [key]))


def _revoked(work: Session, revoked: revoking.Revoked) -> RevokedKey:
    names = service.adapter_names(work, revoked.key.tenant_id, [revoked.key, *revoked.made])
    return RevokedKey.with_made(revoked, names)


def _limits(work: Session, key: ApiKey) -> Limits:
    return Limits.of(key_limits(work, work.get_one(Tenant, key.tenant_id), key))
