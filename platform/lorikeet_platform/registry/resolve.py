"""Which version a request's `model` means, for one tenant. Resolved once, at admission; the answer is pinned.

Another tenant's adapter takes the same path as a missing one: the query is bound to the caller's tenant. An alias with
several targets draws one by weight; a sticky one gives everybody who says who they are the same target every time.

When shares change, whoever moves goes to a target whose share grew by a larger factor than that of the one they had.
So the target that grows most loses nobody, and of two targets the growing one keeps all it had. With three or more a
target that keeps its share, or grows less than another, gives some of its users to that one.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Sequence, Set
from dataclasses import dataclass

from sqlalchemy import Row, Select, literal, select
from sqlalchemy.orm import Session

from lorikeet_platform.db.tables import Adapter, AdapterVersion, Alias, AliasTarget
from lorikeet_platform.errors import PlatformError, model_not_found
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


# id, adapter_id, number, digest, weight, sticky
Candidate = Row[str, str, int, str | None, int, str]


def resolve_model(
    session: Session,
    tenant_id: str,
    model: str,
    base_model: str,
    *,
    user: str | None = None,
    allowed_adapters: Set[str] | None = None,
) -> ResolvedModel:
    """The ready version behind `model`.

    Args:
        user: what sticky aliases go by.
        allowed_adapters: ids; the caller may use no others and not the base model. None = everything.

    Raises:
        PlatformError: model_not_found for unknown, malformed, not ready, and not this tenant's alike;
            adapter_not_allowed_for_key for what the tenant has and the caller may not use.
    """
    candidates = versions_behind(session, tenant_id, model, base_model, allowed_adapters=allowed_adapters)
    if not candidates:
        return ResolvedModel(model, base_model)
    reference = parse_model(model)
    chosen = _choose(candidates, (tenant_id, reference.alias or "" if reference else ""), user)
    return ResolvedModel(model, base_model, chosen.adapter_id, chosen.id, chosen.number, chosen.digest)


def versions_behind(
    session: Session, tenant_id: str, model: str, base_model: str, *, allowed_adapters: Set[str] | None = None
) -> Sequence[Candidate]:
    """The ready versions that `model` may mean, by number; empty for the base model.

    Raises:
        PlatformError: as `resolve_model`.
    """
    if model == base_model:
        if allowed_adapters is not None:
            raise PlatformError("adapter_not_allowed_for_key", param="model")
        return ()
    reference = parse_model(model)
    candidates = session.execute(_candidates(tenant_id, base_model, reference)).all() if reference else []
    if not candidates:
        raise model_not_found(model)
    if allowed_adapters is not None and candidates[0].adapter_id not in allowed_adapters:
        raise PlatformError("adapter_not_allowed_for_key", param="model")
    return candidates


def _candidates(
    tenant_id: str, base_model: str, reference: ModelReference
) -> Select[str, str, int, str | None, int, str]:
    """The ready versions that the name may mean, by number."""
    columns = (AdapterVersion.id, AdapterVersion.adapter_id, AdapterVersion.number, AdapterVersion.digest)
    is_candidate = (
        AdapterVersion.tenant_id == tenant_id,
        AdapterVersion.state == "ready",
        Adapter.tenant_id == tenant_id,
        Adapter.name == reference.adapter,
        Adapter.status == "active",
        Adapter.base_model == base_model,
    )
    of_adapter = (Adapter.tenant_id == AdapterVersion.tenant_id) & (Adapter.id == AdapterVersion.adapter_id)
    if reference.number is not None:
        return (
            select(*columns, literal(1).label("weight"), literal("none").label("sticky"))
            .join(Adapter, of_adapter)
            .where(*is_candidate, AdapterVersion.number == reference.number)
        )
    of_version = (
        (AliasTarget.tenant_id == AdapterVersion.tenant_id)
        & (AliasTarget.adapter_id == AdapterVersion.adapter_id)
        & (AliasTarget.version_id == AdapterVersion.id)
    )
    of_alias = (
        (Alias.tenant_id == AliasTarget.tenant_id)
        & (Alias.adapter_id == AliasTarget.adapter_id)
        & (Alias.alias == AliasTarget.alias)
    )
    return (
        select(*columns, AliasTarget.weight, Alias.sticky)
        .join(Adapter, of_adapter)
        .join(AliasTarget, of_version)
        .join(Alias, of_alias)
        .where(*is_candidate, AliasTarget.tenant_id == tenant_id, AliasTarget.alias == reference.alias)
        .order_by(AdapterVersion.number)
    )


def _choose(candidates: Sequence[Candidate], alias: tuple[str, str], user: str | None) -> Candidate:
    """`alias`: the tenant and the alias that the candidates are the targets of."""
    if len(candidates) == 1:
        return candidates[0]
    if candidates[0].sticky == "user" and user is not None:
        return min(candidates, key=lambda candidate: _wait(alias, candidate.id, user) / candidate.weight)
    place = secrets.randbelow(sum(candidate.weight for candidate in candidates))
    for candidate in candidates:
        if place < candidate.weight:
            return candidate
        place -= candidate.weight
    raise AssertionError("a place below the sum of all weights lies in one of them")


def _wait(alias: tuple[str, str], version_id: str, user: str) -> float:
    """Exponentially distributed over users, and the same for the same user for ever.

    Of several targets each is the first with the probability of its weight, when every wait is divided by the weight
    (weighted rendezvous hashing); nothing else about the others matters to who wins between two.
    """
    told = "\x00".join((*alias, version_id, user)).encode("utf-8", "surrogatepass")
    drawn = int.from_bytes(hashlib.sha256(told).digest()[:8])
    return -math.log((drawn + 1) / 2**64)
