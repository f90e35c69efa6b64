"""What commands print and send, and how they end.

Results go to standard output, everything said on the way to standard error, so that `--json` output can be piped.
Secrets are printed once, when they are made, and nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import IntEnum
from urllib.parse import quote

import typer

# Columns of a table that goes to another program, which wraps nothing.
PIPE_WIDTH = 400


class ExitCode(IntEnum):
    """Documented in the guide; scripts rely on them."""

    OK = 0
    FAILED = 1
    USAGE = 2
    AUTH = 3
    NETWORK = 4
    LOCAL_FILES = 5
    REJECTED = 6
    QUOTA = 7
    CONFLICT = 8
    WAIT_TIMEOUT = 9
    INTEGRITY = 10
    FINDINGS = 11
    NOT_EXAMINED = 12
    INTERRUPTED = 130


class CommandFailed(Exception):
    """A command cannot do what was asked; `main` prints the sentence and exits with the code."""

    def __init__(self, exit_code: ExitCode, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.message = message


def say(message: str) -> None:
    typer.echo(message, err=True)


def print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str) -> None:
    """`rows` under `columns`; `empty` is said instead when there are none."""
    if not rows:
        say(empty)
        return
    # Rich takes longer to import than most commands take to run.
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")  # an id cut short is of no use
    for row in rows:
        table.add_row(*("" if cell is None else escape(str(cell)) for cell in row))
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    console.print(table)


def segment(text: str) -> str:
    """`text` as one part of a path."""
    return quote(text, safe="")


def day_and_time(unix_s: object) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(float(str(unix_s)), UTC).strftime("%Y-%m-%d %H:%M") if unix_s else ""
