"""Limits as the API takes and shows them."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from lorikeet_platform.clock import unix_seconds
from lorikeet_platform.limits.effective import DIMENSIONS, WITH_BURST, Dimension, Limit, Origin
from lorikeet_platform.limits.month import Month
from lorikeet_platform.limits.plans import PLAN_PATTERN, PlanSummary
from lorikeet_platform.limits.service import HIGHEST, LimitsInForce
from lorikeet_platform.tenants.shown_names import DisplayName
from lorikeet_platform.web.listing import Listing


class Figures(BaseModel):
    """`burst`, of rpm and tpm: how much may come at once; null = a minute's worth."""

    model_config = ConfigDict(extra="forbid")

    value: int = Field(ge=0, le=HIGHEST, strict=True, description="0 = nothing at all")
    burst: int | None = Field(default=None, ge=0, le=HIGHEST, strict=True)

    @classmethod
    def of(cls, pair: tuple[int, int | None]) -> Figures:
        return Figures(value=pair[0], burst=pair[1])

    @property
    def pair(self) -> tuple[int, int | None]:
        return self.value, self.burst


class LimitInForce(Figures):
    """The smallest of what key, tenant and plan say; `origin` is who said it."""

    origin: Origin
    own: Figures | None = Field(description="what was set for this subject itself")
    plan: Figures


class Limits(BaseModel):
    limits: dict[Dimension, LimitInForce]

    @classmethod
    def of(cls, found: LimitsInForce) -> Limits:
        return cls(limits={name: _in_force(name, found) for name in DIMENSIONS})


class LimitsPut(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limits: dict[str, Figures | None] = Field(description="by dimension; null = no limit of its own; others stay")

    @property
    def changes(self) -> dict[str, tuple[int, int | None] | None]:
        return {name: None if figures is None else figures.pair for name, figures in self.limits.items()}


class BudgetUse(BaseModel):
    """Tokens of one month. What runs holds all that it may use, until it ends."""

    limit: int
    settled: int
    reserved: int


class MonthUse(BaseModel):
    """Budgets of the calendar month, UTC."""

    starts_at: int
    resets_at: int
    tenant: BudgetUse
    key: BudgetUse = Field(description="of the calling key and those that it was rotated from")

    @classmethod
    def of(cls, month: Month) -> MonthUse:
        return cls(
            starts_at=unix_seconds(month.starts_at),
            resets_at=unix_seconds(month.resets_at),
            tenant=BudgetUse(limit=month.tenant.limit, settled=month.tenant.settled, reserved=month.tenant.reserved),
            key=BudgetUse(limit=month.key.limit, settled=month.key.settled, reserved=month.key.reserved),
        )


class OwnLimits(Limits):
    """What is in force for the calling key, and how much of its month is used."""

    month: MonthUse


class Plan(BaseModel):
    id: str
    display_name: str
    created_at: int
    tenants: int = Field(description="how many are on it")
    limits: dict[Dimension, Figures]

    @classmethod
    def of(cls, summary: PlanSummary) -> Plan:
        return cls(
            id=summary.plan.id,
            display_name=summary.plan.display_name,
            created_at=unix_seconds(summary.plan.created_at),
            tenants=summary.n_tenants,
            limits={
                name: Figures(value=summary.figures[name][0], burst=summary.figures[name][1]) for name in DIMENSIONS
            },
        )


class PlanList(Listing[Plan]):
    pass


class PlanCreate(LimitsPut):
    """What `limits` does not name is as in the plan `standard`."""

    id: str = Field(pattern=PLAN_PATTERN)
    display_name: DisplayName | None = None
    limits: dict[str, Figures | None] = Field(default={}, description="by dimension")


def _in_force(dimension: Dimension, found: LimitsInForce) -> LimitInForce:
    limit: Limit = found.effective[dimension]
    own, plan = found.own.get(dimension), found.plan[dimension]
    return LimitInForce(
        value=limit.value,
        burst=limit.burst if dimension in WITH_BURST else None,
        origin=limit.origin,
        own=None if own is None else Figures.of(own),
        plan=Figures.of(plan),
    )
