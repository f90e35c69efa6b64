"""API keys on the administration port: transport only."""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from lorikeet_platform.accounts.access import Admin
from lorikeet_platform.api_keys import service
from lorikeet_platform.clock import unix_seconds
from lorikeet_platform.context import get_context
from lorikeet_platform.db.tables import ApiKey
from lorikeet_platform.tenants.service import get_tenant
from lorikeet_platform.web.json_body import StrictJsonRoute
from lorikeet_platform.web.listing import Listing

router = APIRouter(prefix="/admin/v1", tags=["keys"], route_class=StrictJsonRoute)


class KeyCreate(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=100)


class Key(BaseModel):
    """A key without its secret; `hint` is the secret's last four characters."""

    id: str
    name: str
    hint: str
    public_id: str
    status: str
    created_at: int
    expires_at: int | None
    revoked_at: int | None
    last_used_at: int | None

    @classmethod
    def of(cls, key: ApiKey) -> Key:
        return cls.model_validate(_fields(key))


class KeyWithSecret(Key):
    """The only answer that ever holds the secret."""

    secret: str


class KeyList(Listing[Key]):
    pass


@router.get("/tenants/{slug}/keys", operation_id="list_keys")
def list_keys(slug: str, _admin: Admin, request: Request) -> KeyList:
    with get_context(request).db.platform.read() as work:
        return KeyList(data=[Key.of(key) for key in service.list_keys(work, get_tenant(work, slug).id)])


@router.post("/tenants/{slug}/keys", operation_id="create_key", status_code=201)
def create_key(slug: str, body: KeyCreate, _admin: Admin, request: Request) -> KeyWithSecret:
    """Create a key and return its secret, once."""
    context = get_context(request)
    with context.db.platform.unit_of_work() as work:
        tenant = get_tenant(work, slug)
        key, secret = service.create_key(work, context.pepper, tenant_id=tenant.id, name=body.name, now=context.clock())
        return KeyWithSecret.model_validate({**_fields(key), "secret": secret})


@router.post("/keys/{key_id}/revoke", operation_id="revoke_key")
def revoke_key(key_id: str, _admin: Admin, request: Request) -> Key:
    """The key stops working at once in this process, within five seconds in others."""
    context = get_context(request)
    with context.db.platform.unit_of_work() as work:
        key = service.revoke_key(work, key_id, context.clock())
    context.authenticator.forget_all()
    return Key.of(key)


def _fields(key: ApiKey) -> dict[str, object]:
    times = ("created_at", "expires_at", "revoked_at", "last_used_at")
    plain = ("id", "name", "hint", "public_id", "status")
    return {name: getattr(key, name) for name in plain} | {
        name: None if getattr(key, name) is None else unix_seconds(getattr(key, name)) for name in times
    }
