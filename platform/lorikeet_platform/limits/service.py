"""Setting limits, and showing what is in force with who said so.

A change names dimensions; what it does not name stays as it is. Who may set what is decided by the caller.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import delete
from sqlalchemy.orm import Session

from lorikeet_platform.audit.service import record
from lorikeet_platform.auth.notices import Notice, announce
from lorikeet_platform.db.tables import ApiKey, KeyLimit, Tenant
from lorikeet_platform.errors import PlatformError, quoted
from lorikeet_platform.limits.effective import COUNTED_BY_KEY, WITH_BURST, EffectiveLimits, Figures
from lorikeet_platform.limits.stored import key_figures, limits_of_key, plan_figures

HIGHEST: Final = 2**62  # there is no unlimited, only large numbers

# Value and burst by dimension; None = no limit of its own any more.
Changes = Mapping[str, tuple[int, int | None] | None]


@dataclass(frozen=True, slots=True)
class LimitsInForce:
    """What holds for a subject: all dimensions, with what was set for itself and what its plan says."""

    effective: EffectiveLimits
    own: Figures
    plan: Figures


def checked(changes: Changes, dimensions: Collection[str]) -> Changes:
    """`changes`, if each is one of `dimensions` and makes sense.

    Raises:
        PlatformError: invalid_value with the dimension as its param.
    """
    for dimension, figures in changes.items():
        param = f"limits.{dimension}"[:100]
        if dimension not in dimensions:
            raise PlatformError("invalid_value", f"{quoted(dimension)} is not a limit that can be set here.", param)
        if figures is None or figures[1] is None:
            continue
        if dimension not in WITH_BURST:
            raise PlatformError("invalid_value", f"{dimension} has no burst.", f"{param}.burst")
        if figures[1] > figures[0]:
            raise PlatformError("invalid_value", f"{dimension}: the burst is a part of the value.", f"{param}.burst")
    return changes


def key_limits(work: Session, tenant: Tenant, key: ApiKey) -> LimitsInForce:
    return LimitsInForce(
        limits_of_key(work, tenant, key.subject_id),
        key_figures(work, tenant.id, key.subject_id),
        plan_figures(work, tenant.plan_id),
    )


def set_key_limits(work: Session, key: ApiKey, changes: Changes, *, actor: str, now: int) -> None:
    """Set limits of a key's whole lineage, for every process to know.

    Raises:
        PlatformError: invalid_value.
    """
    write_key_limits(work, key, changes, actor=actor, now=now)
    details: dict[str, Any] = {name: None if figures is None else list(figures) for name, figures in changes.items()}
    record(work, tenant_id=key.tenant_id, actor=actor, action="key.limits", subject=key.id, now=now, details=details)
    announce(work, Notice(key.tenant_id, key.subject_id, "changed", now))


def write_key_limits(work: Session, key: ApiKey, changes: Changes, *, actor: str, now: int) -> None:
    """The rows alone, for a key that nobody can have asked for yet. Raises PlatformError(invalid_value)."""
    for dimension, figures in checked(changes, COUNTED_BY_KEY).items():
        place = (key.tenant_id, key.subject_id, dimension)
        if figures is None:
            mine = (KeyLimit.tenant_id == place[0], KeyLimit.subject_id == place[1], KeyLimit.dimension == dimension)
            work.execute(delete(KeyLimit).where(*mine), execution_options={"synchronize_session": False})
            continue
        row = work.get(KeyLimit, place)
        if row is None:
            row = KeyLimit(tenant_id=place[0], subject_id=place[1], dimension=dimension)
            work.add(row)
        row.value, row.burst = figures
        row.updated_by, row.updated_at = actor, now
    work.flush()
