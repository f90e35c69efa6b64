"""`GET /v1/models`: what a tenant's key can ask for, in OpenAI's shape.

The list holds names without aliases: `name`, `name@alias` and `name:7` all resolve, and one of them is shown.
Another tenant's adapter and a missing one give the same 404.
"""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel
from sqlalchemy import select
from sqlalchemy.orm import Session

from lorikeet_platform.auth.principal import Principal
from lorikeet_platform.clock import unix_seconds
from lorikeet_platform.context import PlatformContext, get_context
from lorikeet_platform.db.tables import Adapter, AdapterVersion, Alias
from lorikeet_platform.registry.names import DEFAULT_ALIAS
from lorikeet_platform.registry.resolve import ResolvedModel, resolve_model
from lorikeet_platform.web.access import Caller

router = APIRouter(tags=["models"])


class ModelDetail(BaseModel):
    """Our extension: which base model and which version a name stands for, and the adapter's aliases."""

    base_model: str
    version_id: str | None
    aliases: dict[str, int]


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
def list_models(request: Request, caller: Caller) -> ModelList:
    """The base model and every adapter of the caller's tenant that is ready."""
    context = get_context(request)
    with context.db.read() as session:
        return ModelList(data=[_base_model(context), *_live_adapters(session, context, caller)])


@router.get("/v1/models/{model:path}", operation_id="get_model")
def get_model(model: str, request: Request, caller: Caller) -> Model:
    context = get_context(request)
    with context.db.read() as session:
        resolved = resolve_model(session, caller.tenant_id, model, context.settings.model_name)
        return _base_model(context) if resolved.version_id is None else _resolved(session, caller, resolved)


def _base_model(context: PlatformContext) -> Model:
    name = context.settings.model_name
    detail = ModelDetail(base_model=name, version_id=None, aliases={})
    return Model(id=name, created=0, owned_by="platform", lorikeet=detail)


def _live_adapters(session: Session, context: PlatformContext, caller: Principal) -> list[Model]:
    adapters = session.scalars(
        select(Adapter)
        .where(Adapter.tenant_id == caller.tenant_id, Adapter.base_model == context.settings.model_name)
        .order_by(Adapter.name)
    ).all()
    versions = _aliased_versions(session, caller)
    models = []
    for adapter in adapters:
        mine = versions.get(adapter.id, {})
        if live := mine.get(DEFAULT_ALIAS):
            models.append(_model(adapter.name, adapter, live, mine, caller))
    return models


def _resolved(session: Session, caller: Principal, resolved: ResolvedModel) -> Model:
    adapter = session.scalars(
        select(Adapter).where(Adapter.tenant_id == caller.tenant_id, Adapter.id == resolved.adapter_id)
    ).one()
    version = session.scalars(
        select(AdapterVersion).where(
            AdapterVersion.tenant_id == caller.tenant_id, AdapterVersion.id == resolved.version_id
        )
    ).one()
    return _model(resolved.model, adapter, version, _aliased_versions(session, caller).get(adapter.id, {}), caller)


def _aliased_versions(session: Session, caller: Principal) -> dict[str, dict[str, AdapterVersion]]:
    """By adapter id and alias: the ready version behind each alias of the tenant."""
    rows = session.execute(
        select(Alias.adapter_id, Alias.alias, AdapterVersion)
        .join(
            AdapterVersion,
            (AdapterVersion.tenant_id == Alias.tenant_id) & (AdapterVersion.id == Alias.version_id),
        )
        .where(
            Alias.tenant_id == caller.tenant_id,
            AdapterVersion.tenant_id == caller.tenant_id,
            AdapterVersion.state == "ready",
        )
    )
    versions: dict[str, dict[str, AdapterVersion]] = {}
    for adapter_id, alias, version in rows:
        versions.setdefault(adapter_id, {})[alias] = version
    return versions


def _model(
    name: str, adapter: Adapter, version: AdapterVersion, aliases: dict[str, AdapterVersion], caller: Principal
) -> Model:
    return Model(
        id=name,
        created=unix_seconds(version.created_at),
        owned_by=caller.tenant_slug,
        lorikeet=ModelDetail(
            base_model=adapter.base_model,
            version_id=version.id,
            aliases={alias: pointed.number for alias, pointed in sorted(aliases.items())},
        ),
    )
