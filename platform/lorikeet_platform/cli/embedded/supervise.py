"""Keeps an engine and a gateway running until told to stop.

engine dies before it was ever ready   everything stops: it would die again
engine dies later                      it is started again, after a growing pause; the gateway answers 503 meanwhile
gateway dies                           everything stops: nobody could reach the engine
stop                                   the gateway drains, then the engine ends
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Final

import httpx

from lorikeet_platform.cli.console import CommandFailed, ExitCode, say
from lorikeet_platform.cli.embedded.children import Child

READY_WITHIN_S: Final = 240.0
READY_POLL_S: Final = 0.1
GATEWAY_GRACE_S: Final = 6.5  # together under the ten seconds that stopping may take
ENGINE_GRACE_S: Final = 2.5
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0
# An engine that ran this long did not die of what killed it last time.
STEADY_AFTER_S: Final = 60.0


class Supervisor:
    """One engine and one gateway."""

    def __init__(
        self,
        *,
        engine_command: Sequence[str],
        gateway_command: Sequence[str],
        gateway_environment: Mapping[str, str],
        ready_url: str,
    ) -> None:
        self._engine_command = engine_command
        self._gateway_command = gateway_command
        self._gateway_environment = gateway_environment
        self._ready_url = ready_url
        self._engine: Child | None = None
        self._gateway: Child | None = None

    async def start(self) -> None:
        """Start both and return when requests would be answered; raises CommandFailed."""
        self._engine = await self._start_engine()
        self._gateway = await Child.start("gateway", self._gateway_command, environment=self._gateway_environment)
        deaths = {asyncio.ensure_future(child.ended()): child.name for child in (self._engine, self._gateway)}
        ready = asyncio.ensure_future(self._until_ready())
        try:
            await asyncio.wait({ready, *deaths}, return_when=asyncio.FIRST_COMPLETED)
            for death, name in deaths.items():
                if death.done():
                    raise CommandFailed(ExitCode.FAILED, f"the {name} ended at start, {_status(death.result())}")
            await ready
        finally:
            for task in (ready, *deaths):
                task.cancel()

    async def watch(self) -> None:
        """Run for ever; raises CommandFailed when the gateway is gone."""
        assert self._gateway is not None
        keeping = asyncio.ensure_future(self._keep_engine())
        try:
            status = await self._gateway.ended()
            raise CommandFailed(ExitCode.FAILED, f"the gateway ended, {_status(status)}")
        finally:
            keeping.cancel()

    async def stop(self) -> None:
        if self._gateway is not None:
            await self._gateway.stop(GATEWAY_GRACE_S)
        if self._engine is not None:
            await self._engine.stop(ENGINE_GRACE_S)

    async def _keep_engine(self) -> None:
        assert self._engine is not None
        pause_s = FIRST_PAUSE_S
        while True:
            started_at = time.monotonic()
            status = await self._engine.ended()
            if time.monotonic() - started_at > STEADY_AFTER_S:
                pause_s = FIRST_PAUSE_S
            say(f"lorikeet: the engine ended, {_status(status)}; starting it again in {pause_s:.0f} s")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            self._engine = await self._start_engine()

    async def _start_engine(self) -> Child:
        return await Child.start("engine", self._engine_command, environment={})

    async def _until_ready(self) -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        async with httpx.AsyncClient(timeout=5.0, trust_env=False) as client:
            while time.monotonic() < deadline:
                try:
                    if (await client.get(self._ready_url)).status_code == httpx.codes.OK:
                        return
                except httpx.HTTPError:
                    pass  # not listening yet
                await asyncio.sleep(READY_POLL_S)
        raise CommandFailed(ExitCode.FAILED, f"not ready after {READY_WITHIN_S:.0f} s; the engine's messages say why")


def _status(status: int) -> str:
    return f"by signal {-status}" if status < 0 else f"with status {status}"
