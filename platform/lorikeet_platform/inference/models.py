"""`GET /v1/models`: what a tenant's key can ask for, in OpenAI's shape.

The list holds names without aliases: `name`, `name@alias` and `name:7` all resolve, and one of them is shown.
Another tenant's adapter and a missing one give the same 404.
"""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from lorikeet_platform.auth.principal import Principal
from lorikeet_platform.auth.scopes import needs
from lorikeet_platform.clock import unix_seconds
from lorikeet_platform.context import PlatformContext, get_context
from lorikeet_platform.db.tables import AdapterVersion
from lorikeet_platform.errors import PlatformError, model_not_found
from lorikeet_platform.registry.catalogue import AdapterEntry, AliasEntry, list_adapters
from lorikeet_platform.registry.names import DEFAULT_ALIAS, parse_model
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
    with context.db.tenant(caller.tenant_id).read() as session:
        adapters = _served(session, context, caller)
    shown = (_model(entry.adapter.name, entry, _aliased(entry, DEFAULT_ALIAS), caller) for entry in adapters)
    base = [_base_model(context)] if caller.allowed_adapters is None else []
    return ModelList(data=[*base, *(model for model in shown if model is not None)])


@router.get("/v1/models/{model:path}", operation_id="get_model")
@needs("models:read", "inference")
def get_model(model: str, request: Request, caller: Caller) -> Model:
    context = get_context(request)
    if model == context.settings.model_name:
        if caller.allowed_adapters is not None:
            raise _not_allowed()
        return _base_model(context)
    reference = parse_model(model)
    with context.db.tenant(caller.tenant_id).read() as session:
        entries = _of_base(session, context, caller) if reference else []
    for entry in entries:
        if reference and entry.adapter.name == reference.adapter:
            version = _aliased(entry, reference.alias) if reference.alias else _numbered(entry, reference.number)
            found = _model(model, entry, version, caller)
            if found is not None and not _may_use(caller, entry):
                raise _not_allowed()
            if found is not None:
                return found
    raise model_not_found(model)


def _base_model(context: PlatformContext) -> Model:
    name = context.settings.model_name
    detail = ModelDetail(base_model=name, version_id=None, aliases={})
    return Model(id=name, created=0, owned_by="platform", lorikeet=detail)


def _served(session: Session, context: PlatformContext, caller: Principal) -> list[AdapterEntry]:
    return [entry for entry in _of_base(session, context, caller) if _may_use(caller, entry)]


def _of_base(session: Session, context: PlatformContext, caller: Principal) -> list[AdapterEntry]:
    served = context.settings.model_name
    return [entry for entry in list_adapters(session, caller.tenant_id) if entry.adapter.base_model == served]


def _may_use(caller: Principal, entry: AdapterEntry) -> bool:
    return caller.allowed_adapters is None or entry.adapter.id in caller.allowed_adapters


def _not_allowed() -> PlatformError:
    return PlatformError("adapter_not_allowed_for_key", param="model")


def _aliased(entry: AdapterEntry, alias: str) -> AdapterVersion | None:
    """The ready version with the largest share of the alias."""
    shares = [
        (weight, number) for known in entry.aliases if known.alias.alias == alias for number, weight in known.targets
    ]
    ready = [(weight, version) for weight, number in shares if (version := _numbered(entry, number)) is not None]
    return max(ready, key=lambda share: share[0])[1] if ready else None


def _numbered(entry: AdapterEntry, number: int | None) -> AdapterVersion | None:
    return next((version for version in entry.versions if version.number == number and version.state == "ready"), None)


def _model(name: str, entry: AdapterEntry, version: AdapterVersion | None, caller: Principal) -> Model | None:
    if version is None:
        return None
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
