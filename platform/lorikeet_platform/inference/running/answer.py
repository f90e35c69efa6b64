"""An answer on its way: a generation on the version that was resolved for it, or on the one its name means now.

Between resolving a name and the engine's first step an adapter may be taken out of service. As long as nothing was
answered, the name is then looked up once more; what the caller is told is always the version that answered.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from lorikeet_engine.client import Delta, Generation, Usage
from lorikeet_engine.errors import AdapterRetired
from lorikeet_engine.generation import Milestones
from lorikeet_platform.clock import Clock
from lorikeet_platform.registry.resolve import ResolvedModel

TRIES: Final = 3  # each after the first means that somebody moved the adapter while the request was on its way


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """What a running answer needs of the service.

    Attributes:
        start: asks the engine for the answer of one version.
        resolve: what the request's name means now; raises PlatformError(model_not_found).
        warm: puts a version back into service in an engine that took it out; raises EngineError.
    """

    start: Callable[[ResolvedModel], Awaitable[Generation]]
    resolve: Callable[[], Awaitable[ResolvedModel]]
    warm: Callable[[ResolvedModel], Awaitable[None]]


class RunningAnswer:
    """Iterate over it for the answers' pieces, and `close` it whatever happens.

    Attributes:
        resolved: the version that answers.
        first_token_at: when the first piece came; None before.
    """

    def __init__(self, resolved: ResolvedModel, steps: Steps, clock: Clock) -> None:
        self.resolved = resolved
        self.first_token_at: int | None = None
        self._steps, self._clock = steps, clock
        self._generation: Generation | None = None

    @property
    def usage(self) -> Usage:
        return Usage(0, 0) if self._generation is None else self._generation.usage

    @property
    def milestones(self) -> Milestones | None:
        """Of the generation that answers; None before it was asked for."""
        return None if self._generation is None else self._generation.milestones

    async def begin(self) -> None:
        """Raises EngineUnavailable."""
        self._generation = await self._steps.start(self.resolved)

    async def __aiter__(self) -> AsyncIterator[Delta]:
        """Raises EngineError, and PlatformError for a model that went away before its first token."""
        for n_left in range(TRIES - 1, -1, -1):
            assert self._generation is not None
            try:
                async for delta in self._generation:
                    if self.first_token_at is None:
                        self.first_token_at = self._clock()
                    yield delta
                return
            except AdapterRetired:
                if self.first_token_at is not None or n_left == 0:
                    raise
            await self._go_on()

    async def close(self) -> None:
        if self._generation is not None:
            await self._generation.close()

    async def _go_on(self) -> None:
        await self.close()
        now_meant = await self._steps.resolve()
        if now_meant.version_id == self.resolved.version_id:
            # It is in service: the engine has not heard that its retirement was taken back.
            await self._steps.warm(now_meant)
        self.resolved = now_meant
        await self.begin()
