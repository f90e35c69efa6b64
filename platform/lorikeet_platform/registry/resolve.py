"""Which version a request's `model` means, for one tenant. Resolved once, at admission; the answer is pinned.

Another tenant's adapter takes the same path as a missing one: the query is bound to the caller's tenant.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from lorikeet_platform.db.tables import Adapter, AdapterVersion, Alias
from lorikeet_platform.errors import model_not_found
from lorikeet_platform.registry.names import ModelReference, parse_model


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """`model` as the client sent it, and what it stands for; all None for the base model."""

    model: str
    base_model: str
    adapter_id: str | None = None
    version_id: str | None = None
    number: int | None = None
    digest: str | None = None


def resolve_model(session: Session, tenant_id: str, model: str, base_model: str) -> ResolvedModel:
    """The ready version behind `model`.

    Raises:
        PlatformError: model_not_found for unknown, malformed, not ready, and not this tenant's alike.
    """
    if model == base_model:
        return ResolvedModel(model, base_model)
    reference = parse_model(model)
    version = session.scalars(_ready_version(tenant_id, base_model, reference)).one_or_none() if reference else None
    if version is None:
        raise model_not_found(model)
    return ResolvedModel(model, base_model, version.adapter_id, version.id, version.number, version.digest)


def _ready_version(tenant_id: str, base_model: str, reference: ModelReference) -> Select[AdapterVersion]:
    statement = (
        select(AdapterVersion)
        .join(Adapter, (Adapter.tenant_id == AdapterVersion.tenant_id) & (Adapter.id == AdapterVersion.adapter_id))
        .where(
            AdapterVersion.tenant_id == tenant_id,
            AdapterVersion.state == "ready",
            Adapter.tenant_id == tenant_id,
            Adapter.name == reference.adapter,
            Adapter.base_model == base_model,
        )
    )
    if reference.number is not None:
        return statement.where(AdapterVersion.number == reference.number)
    return statement.join(
        Alias, (Alias.tenant_id == AdapterVersion.tenant_id) & (Alias.version_id == AdapterVersion.id)
    ).where(Alias.tenant_id == tenant_id, Alias.alias == reference.alias)
