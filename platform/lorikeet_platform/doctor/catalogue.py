"""Every rule there is, in the order in which findings of one severity are shown, and what one round of them says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from lorikeet_platform.doctor.examined import Seen, Surroundings
from lorikeet_platform.doctor.rules import adapters, demand, installation, memory, phases, prefixes
from lorikeet_platform.doctor.schemas import Finding

PlatformRule = Callable[[Surroundings], Finding | None]
EngineRule = Callable[[Seen], Finding | None]

PLATFORM_RULES: Final[Mapping[str, PlatformRule]] = {
    rule.__name__: rule for rule in (installation.engine_away, installation.books_disagree, installation.rates_degraded)
}
ENGINE_RULES: Final[Mapping[str, EngineRule]] = {
    rule.__name__: rule
    for rule in (
        demand.failed_steps,
        demand.overload,
        memory.preemption,
        memory.seats_lowered,
        memory.too_few_seats,
        phases.long_prompt,
        phases.prefill_starved,
        phases.tail_latency,
        prefixes.dynamic_prompt_head,
        prefixes.prefix_alignment,
        prefixes.prefix_caching_off,
        prefixes.prefix_evicted,
        prefixes.prefix_split,
        adapters.adapter_thrash,
        adapters.adapters_per_step,
        adapters.host_cache,
        adapters.huge_rank,
        demand.step_time_model,
        demand.unsettled,
    )
}
NAMES: Final = (*PLATFORM_RULES, *ENGINE_RULES)

# What a rule finds may only follow from what others find; then those are told, and it is not.
FOLLOWS: Final[Mapping[str, tuple[str, ...]]] = {
    "seats_lowered": ("preemption",),
    "tail_latency": (
        *("overload", "preemption", "seats_lowered", "too_few_seats", "long_prompt", "prefill_starved"),
        *("adapter_thrash", "adapters_per_step", "host_cache"),
    ),
    "step_time_model": (
        *("overload", "preemption", "seats_lowered", "too_few_seats"),
        *("adapter_thrash", "adapters_per_step", "host_cache"),
    ),
}


def examine(around: Surroundings, seen: Seen | None) -> dict[str, Finding | None]:
    """What every rule says; those about the engine only where enough of it was seen."""
    found = {name: rule(around) for name, rule in PLATFORM_RULES.items()}
    if seen is not None:
        found |= {name: rule(seen) for name, rule in ENGINE_RULES.items()}
    explained = {name for name, causes in FOLLOWS.items() if any(found.get(cause) for cause in causes)}
    return {name: None if name in explained else finding for name, finding in found.items()}
