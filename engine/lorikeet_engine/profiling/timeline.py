"""The port that tells where a step's time goes. Who calls it has no clock; whoever listens brings one.

`NOT_PROFILED` listens to nothing and is what everybody gets unless an engine was started to be profiled.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

from lorikeet_engine.scheduling.plan import StepPlan

NOTHING: Final[AbstractContextManager[None]] = nullcontext()


class Timeline(Protocol):
    """Steps, and inside each its phases one after the other. One thread."""

    def turn(self) -> AbstractContextManager[None]:
        """One turn of the engine's loop; of interest only when it computes a step."""
        ...

    def computes(self, plan: StepPlan, kind: str) -> None:
        """What this turn's step is."""
        ...

    def phase(self, name: str) -> AbstractContextManager[None]:
        """A part of the turn; phases may have phases inside."""
        ...


class _NotProfiled:
    def turn(self) -> AbstractContextManager[None]:
        return NOTHING

    def computes(self, plan: StepPlan, kind: str) -> None: ...

    def phase(self, name: str) -> AbstractContextManager[None]:  # noqa: ARG002 (the port's signature)
        return NOTHING


NOT_PROFILED: Final[Timeline] = _NotProfiled()
