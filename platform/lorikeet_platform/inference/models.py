"""`GET /v1/models`: what a tenant's key can ask for, in OpenAI's shape.

The list holds names without aliases: `name`, `name@alias` and `name:7` all resolve, and one of them is shown.
Another tenant's adapter and a missing one give the same 404.
"""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from lorikeet_platform.auth.principal import Principal
from lorikeet_platform.auth.scopes import needs
from lorikeet_platform.clock import unix_seconds
from lorikeet_platform.context import get_context
from lorikeet_platform.db.tables import Adapter, AdapterVersion
from lorikeet_platform.errors import model_not_found
from lorikeet_platform.registry.catalogue import AdapterEntry, AliasEntry, get_adapter, list_adapters
from lorikeet_platform.registry.names import DEFAULT_ALIAS
from lorikeet_platform.registry.reach import limit_reach
from lorikeet_platform.registry.resolve import versions_behind
from lorikeet_platform.registry.schemas import AliasTarget
from lorikeet_platform.web.access import Caller

router = APIRouter(tags=["models"])


class ModelDetail(BaseModel):
    """Our extension: which base model and which version a name stands for, and the adapter's aliases."""

    base_model: str
    version_id: str | None = Field(description="of several, the one with the largest share of the requests")
    aliases: dict[str, list[AliasTarget]]


class Model(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str
    lorikeet: ModelDetail


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[Model]


@router.get("/v1/models", operation_id="list_models")
@needs("models:read", "inference")
def list_models(request: Request, caller: Caller) -> ModelList:
    """The base model and the tenant's adapters whose bare name means a version: those that the key may use."""
    context = get_context(request)
    name = context.settings.model_name
    with context.db.tenant(caller.tenant_id).read() as session:
        limit_reach(session, caller.allowed_adapters)
        adapters = [entry for entry in list_adapters(session, caller.tenant_id) if entry.adapter.base_model == name]
    served = ((entry, _live(entry)) for entry in adapters)
    base = [_base_model(name)] if caller.allowed_adapters is None else []
    shown = [_model(entry.adapter.name, entry, live, caller) for entry, live in served if live is not None]
    return ModelList(data=[*base, *shown])


@router.get("/v1/models/{model:path}", operation_id="get_model")
@needs("models:read", "inference")
def get_model(model: str, request: Request, caller: Caller) -> Model:
    """What a request that names this model would be answered by."""
    base, tenant_id = get_context(request).settings.model_name, caller.tenant_id
    with get_context(request).db.tenant(tenant_id).read() as session:
        meant = versions_behind(session, tenant_id, model, base, allowed_adapters=caller.allowed_adapters)
        if not meant:
            return _base_model(base)
        largest = max(meant, key=lambda version: version.weight)
        entry = get_adapter(session, tenant_id, session.get_one(Adapter, (tenant_id, largest.adapter_id)).name)
    version = next((version for version in entry.versions if version.id == largest.id), None)
    if version is None:  # it went between the two looks
        raise model_not_found(model)
    return _model(model, entry, version, caller)


def _base_model(name: str) -> Model:
    detail = ModelDetail(base_model=name, version_id=None, aliases={})
    return Model(id=name, created=0, owned_by="platform", lorikeet=detail)


def _live(entry: AdapterEntry) -> AdapterVersion | None:
    """The ready version with the largest share of the bare name."""
    shares = [share for known in entry.aliases if known.alias.alias == DEFAULT_ALIAS for share in known.targets]
    weights = dict(shares)
    ready = [version for version in entry.versions if version.state == "ready" and version.number in weights]
    return max(ready, key=lambda version: (weights[version.number], -version.number), default=None)


def _model(name: str, entry: AdapterEntry, version: AdapterVersion, caller: Principal) -> Model:
    return Model(
        id=name,
        created=unix_seconds(version.created_at),
        owned_by=caller.tenant_slug,
        lorikeet=ModelDetail(
            base_model=entry.adapter.base_model,
            version_id=version.id,
            aliases={known.alias.alias: _targets(known) for known in entry.aliases},
        ),
    )


def _targets(entry: AliasEntry) -> list[AliasTarget]:
    return [AliasTarget(version=number, weight=weight) for number, weight in entry.targets]
