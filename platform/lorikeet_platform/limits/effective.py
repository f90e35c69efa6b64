"""The limits in force for a caller: the minimum over key, tenant and plan, with its origin. No database, no clock.

0 = blocked; there is no "unlimited", only large numbers. A plan has a value for every dimension.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

Dimension = Literal[
    "rpm",
    "tpm",
    "concurrent",
    "queue_depth",
    "monthly_tokens",
    "max_context",
    "max_output_tokens",
    "max_n",
    "adapters",
    "adapter_bytes",
    "upload_inflight_bytes",
    "open_uploads",
    "keys",
]
Origin = Literal["plan", "tenant", "key"]
DIMENSIONS: Final[tuple[Dimension, ...]] = get_args(Dimension)
# What can be counted for one key alone. The others are of a tenant as a whole, or of one request.
COUNTED_BY_KEY: Final[frozenset[Dimension]] = frozenset(
    ("rpm", "tpm", "concurrent", "queue_depth", "monthly_tokens", "max_context", "max_output_tokens", "max_n")
)
WITH_BURST: Final[frozenset[Dimension]] = frozenset(("rpm", "tpm"))


@dataclass(frozen=True, slots=True)
class Limit:
    """`burst` is how much may come at once where that is counted (rpm, tpm); 0 elsewhere."""

    value: int
    burst: int
    origin: Origin


@dataclass(frozen=True, slots=True)
class EffectiveLimits:
    """Limits of one key of one tenant.

    Attributes:
        of_tenant: for every dimension what the tenant as a whole may do: plan and tenant.
        of_key: only what was set for the key's lineage.
    """

    of_tenant: Mapping[Dimension, Limit]
    of_key: Mapping[Dimension, Limit]

    def __getitem__(self, dimension: Dimension) -> Limit:
        """The smaller of the two; the key's where they are equal."""
        tenant, key = self.of_tenant[dimension], self.of_key.get(dimension)
        return tenant if key is None else _smaller(key, tenant)


Figures = Mapping[Dimension, tuple[int, int | None]]  # value and burst; no burst = a minute's worth


def effective_limits(plan: Figures, tenant: Figures, key: Figures) -> EffectiveLimits:
    """Raises KeyError when the plan lacks a dimension."""
    of_tenant: dict[Dimension, Limit] = {}
    for dimension in DIMENSIONS:
        of_plan = _limit(dimension, plan[dimension], "plan")
        own = _limit(dimension, tenant[dimension], "tenant") if dimension in tenant else of_plan
        of_tenant[dimension] = _smaller(own, of_plan)
    return EffectiveLimits(of_tenant, {name: _limit(name, figures, "key") for name, figures in key.items()})


def _smaller(own: Limit, other: Limit) -> Limit:
    """The smaller value, and the smaller burst with it: neither makes room that the other does not give."""
    least, burst = own if own.value <= other.value else other, min(own.burst, other.burst)
    return least if least.burst == burst else replace(least, burst=burst)


def _limit(dimension: Dimension, figures: tuple[int, int | None], origin: Origin) -> Limit:
    value, burst = figures
    if dimension not in WITH_BURST:
        return Limit(value, 0, origin)
    return Limit(value, value if burst is None else min(burst, value), origin)
