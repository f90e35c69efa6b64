"""How far an upload is: a bar on a terminal, a line now and then elsewhere, JSON for programs."""

from __future__ import annotations

import json
import sys
import time
from types import TracebackType
from typing import Protocol, Self

from lorikeet_platform.cli.console import say

LINE_EVERY_S = 10.0
EVENT_EVERY_S = 1.0
MIB = 1 << 20


class Progress(Protocol):
    """Told how many bytes of the whole push have arrived; `note` says something beside it."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def at(self, n_bytes: int) -> None: ...

    def note(self, message: str) -> None: ...


def progress_for(label: str, total: int, *, quiet: bool = False, events: bool = False) -> Progress:
    """`events`: lines of JSON, for a program that reads standard error."""
    if quiet:
        return NoProgress()
    if events:
        return EventProgress(label, total)
    return BarProgress(label, total) if sys.stderr.isatty() else LineProgress(label, total)


def say_event(kind: str, **fields: object) -> None:
    say(json.dumps({"event": kind, **fields}, ensure_ascii=False))


class BarProgress:
    """One bar with rate and time left."""

    def __init__(self, label: str, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
        from rich.progress import Progress as RichProgress

        self._rich = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task = self._rich.add_task(label, total=total)

    def __enter__(self) -> Self:
        self._rich.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._rich.stop()

    def at(self, n_bytes: int) -> None:
        self._rich.update(self._task, completed=n_bytes)

    def note(self, message: str) -> None:
        self._rich.console.print(message, markup=False)


class NoProgress:
    """Says nothing of progress, but passes notes on: they tell of trouble."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def at(self, n_bytes: int) -> None:  # noqa: ARG002 (the Progress protocol)
        return

    def note(self, message: str) -> None:
        say(message)


class EventProgress:
    """One JSON object a line: at the start, once a second, at the end; and every note."""

    def __init__(self, label: str, total: int) -> None:
        self._label, self._total = label, total
        self._said_at = float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def at(self, n_bytes: int) -> None:
        now = time.monotonic()
        if n_bytes == self._total or now - self._said_at >= EVENT_EVERY_S:
            self._said_at = now
            say_event("progress", what=self._label, bytes=n_bytes, total=self._total)

    def note(self, message: str) -> None:
        say_event("note", message=message)


class LineProgress:
    """A line at the start, every ten seconds, and at the end."""

    def __init__(self, label: str, total: int) -> None:
        self._label, self._total = label, total
        self._said_at = 0.0
        self._n_bytes = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def at(self, n_bytes: int) -> None:
        is_last = n_bytes == self._total and self._n_bytes != n_bytes
        self._n_bytes = n_bytes
        now = time.monotonic()
        if is_last or now - self._said_at >= LINE_EVERY_S:
            self._said_at = now
            say(f"{self._label}: {n_bytes / MIB:.1f} of {self._total / MIB:.1f} MiB")

    def note(self, message: str) -> None:
        say(message)
