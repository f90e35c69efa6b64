"""What the engine remembers of one adapter."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from lorikeet_engine.memory.adapters.eviction import Usage


class Residency(StrEnum):
    """How far an adapter has come; one that is only waited for has no state."""

    LOADING = "loading"
    HOST = "host"
    PLACING = "placing"
    RESIDENT = "resident"
    DRAINING = "draining"  # placing or resident, and nothing new may start on it


@dataclass(slots=True)
class AdapterEntry:
    """`state` is None while the adapter is in neither tier; it is never DRAINING, which `draining` says."""

    state: Residency | None = None
    n_grains: int = 0  # 0 until an image has been seen
    pins: int = 0  # running requests
    waiting: int = 0  # requests that wait for it
    is_fresh: bool = False  # the image was read from disk for whoever waits
    draining: bool = False
    retired: bool = False
    usage: Usage = field(default_factory=Usage)

    @property
    def in_arena(self) -> bool:
        return self.state is Residency.PLACING or self.state is Residency.RESIDENT

    @property
    def is_idle(self) -> bool:
        return self.state is Residency.RESIDENT and not self.pins

    @property
    def is_needed(self) -> bool:
        """Whether a request, a load or a copy still counts on the entry."""
        return bool(self.pins or self.waiting) or self.state in (Residency.LOADING, Residency.PLACING)

    @property
    def word(self) -> str:
        """Its state for people: "cold" while it waits for its load, draining also while it is being retired."""
        if self.in_arena and (self.draining or self.retired):
            return Residency.DRAINING.value
        return self.state.value if self.state else "cold"

    def is_consistent(self, *, in_room: bool, in_order: bool, in_host: bool, is_wished: bool) -> bool:
        """Whether the entry says what the arena, the eviction order and the host cache say."""
        is_cold = self.state is None
        return (
            self.in_arena == in_room
            and self.is_idle == in_order
            and (in_host or self.state not in (Residency.HOST, Residency.PLACING))
            and not (in_host and (is_cold or self.state is Residency.LOADING))
            and (not is_wished or (is_cold and self.waiting > 0))
            and (not is_cold or self.waiting > 0)
            and (self.in_arena or not (self.pins or self.draining))
        )
