"""Child processes that never outlive the command that started them.

Each child leads a session of its own, so that Ctrl-C in a terminal reaches the supervisor alone, which then ends its
children in order. On Linux the kernel ends a child whose supervisor was killed.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence

PR_SET_PDEATHSIG = 1


class Child:
    """One running child process."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self._process = process

    @classmethod
    async def start(
        cls, name: str, arguments: Sequence[str], *, environment: Mapping[str, str], capture: bool = False
    ) -> Child:
        """`capture` keeps standard output for `output`; otherwise it goes where ours goes."""
        process = await asyncio.create_subprocess_exec(
            *arguments,
            env={**os.environ, **environment},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE if capture else None,
            start_new_session=True,
            preexec_fn=_death_with_parent(),
        )
        return cls(name, process)

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    async def ended(self) -> int:
        """The exit status, once there is one; negative for a signal."""
        return await self._process.wait()

    async def output(self) -> tuple[int, str]:
        """Exit status and everything written to standard output; for children started with `capture`."""
        content, _ = await self._process.communicate()
        return await self._process.wait(), content.decode(errors="replace")

    async def stop(self, grace_s: float) -> None:
        """Ask it to end; after `grace_s` end it with everything it started."""
        if self.is_running:
            self._signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(self._process.wait(), grace_s)
            except TimeoutError:
                self._signal_group(signal.SIGKILL)
                await self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        try:
            self._process.send_signal(number)
        except ProcessLookupError:
            pass

    def _signal_group(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            pass


def _death_with_parent() -> Callable[[], None] | None:
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)  # looked up before the fork: afterwards only the call itself is safe

    def ask_for_signal() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    return ask_for_signal
