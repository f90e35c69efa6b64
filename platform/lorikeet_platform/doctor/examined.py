"""What a rule may look at: the engine over a window, what it was started with, and the platform around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from lorikeet_engine.stats import EngineDesign, PromptHeads
from lorikeet_platform.engine_watch.window import Window


class Names(Protocol):
    """People's words for ids."""

    def tenant(self, tenant_id: str) -> str: ...
    def adapter(self, tenant_id: str, digest: str) -> str: ...


class Ids(Names):
    """The ids themselves."""

    def tenant(self, tenant_id: str) -> str:
        return tenant_id

    def adapter(self, tenant_id: str, digest: str) -> str:
        return f"{tenant_id}/{digest}" if digest else f"{tenant_id} on the base model"


@dataclass(frozen=True, slots=True)
class Registered:
    """One version of an adapter that may be served; `rank` is its highest, None where nobody has looked."""

    tenant: str
    adapter: str
    digest: str
    rank: int | None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the platform knows beside the engine.

    Attributes:
        away_s: how long no engine has answered, None while one does; without any yet, since the gateway's start.
        has_answered: whether one ever did.
        books_mismatches: sums that the ledger's books disagreed on at their last check, None if they never were.
        rates_degraded: whether this gateway counts its share of the rates alone.
        registered: every version that may be served.
        decode: text of some tokens.
    """

    away_s: float | None = None
    has_answered: bool = True
    books_mismatches: int | None = None
    rates_degraded: bool = False
    names: Names = field(default_factory=Ids)
    registered: Callable[[], Sequence[Registered]] = tuple
    decode: Callable[[Sequence[int]], str] = lambda tokens: " ".join(map(str, tokens))


@dataclass(frozen=True, slots=True)
class Seen:
    """An engine that answers, over one window."""

    window: Window
    design: EngineDesign
    prompts: Sequence[PromptHeads] = ()
    around: Surroundings = field(default_factory=Surroundings)

    def knob(self, name: str) -> float:
        return float(self.design.knobs[name])
