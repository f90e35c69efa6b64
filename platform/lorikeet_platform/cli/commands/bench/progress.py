"""How far a load test is: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Self

from lorikeet_platform.cli.console import say

LINE_EVERY_S = 10.0
REDRAW_EVERY_S = 0.2  # drawing takes time from the generator, which runs in the same thread


class LoadProgress:
    """Told how many requests were sent and have ended; `total` is 0 when nobody knows how many there will be."""

    def __init__(self, label: str, total: int) -> None:
        self._label, self._total = label, total
        self._told_at = time.monotonic()
        self._bar: Any = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}"))
            self._bar = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), auto_refresh=False)
            self._task = self._bar.add_task(label, total=total or None, said="")

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.refresh()
            self._bar.stop()

    def at(self, n_sent: int, n_ended: int) -> None:
        now = time.monotonic()
        is_last = 0 < self._total == n_ended
        if now - self._told_at < (REDRAW_EVERY_S if self._bar else LINE_EVERY_S) and not is_last:
            return
        self._told_at = now
        said = f"{n_ended}{f' of {self._total}' if self._total else ''} ended, {n_sent - n_ended} running"
        if self._bar:
            self._bar.update(self._task, completed=n_ended, said=said)
            self._bar.refresh()
        else:
            say(f"{self._label}: {said}")
