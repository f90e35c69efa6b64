"""Limits as the API takes and shows them."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from lorikeet_platform.limits.effective import DIMENSIONS, WITH_BURST, Dimension, Limit, Origin
from lorikeet_platform.limits.service import HIGHEST, LimitsInForce


class Figures(BaseModel):
    """`burst`, of rpm and tpm: how much may come at once; null = a minute's worth."""

    model_config = ConfigDict(extra="forbid")

    value: int = Field(ge=0, le=HIGHEST, strict=True, description="0 = nothing at all")
    burst: int | None = Field(default=None, ge=0, le=HIGHEST, strict=True)

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


def _in_force(dimension: Dimension, found: LimitsInForce) -> LimitInForce:
    limit: Limit = found.effective[dimension]
    own, plan = found.own.get(dimension), found.plan[dimension]
    return LimitInForce(
        value=limit.value,
        burst=limit.burst if dimension in WITH_BURST else None,
        origin=limit.origin,
        own=None if own is None else Figures(value=own[0], burst=own[1]),
        plan=Figures(value=plan[0], burst=plan[1]),
    )
