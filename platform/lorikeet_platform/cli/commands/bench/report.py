"""`lorikeet bench report`: the figures of what load tests and sweeps recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lorikeet_platform.cli.console import CommandFailed, ExitCode, say


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN.json…", help="What `bench serve` and `bench sweep` wrote.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder that is drawn into.")] = Path("report"),
) -> None:
    """Draw runs: PNG pages, one HTML file that holds them all, and Markdown. Several are also compared."""
    from lorikeet_engine.experiments.record import RecordUnreadable, read_record
    from lorikeet_platform.tools.bench.report import draw

    try:
        records = [read_record(path) for path in runs]
    except (RecordUnreadable, OSError) as error:
        raise CommandFailed(ExitCode.LOCAL_FILES, str(error)) from None
    if empty := [str(path) for path, record in zip(runs, records, strict=True) if not record.points]:
        raise CommandFailed(ExitCode.LOCAL_FILES, f"{empty[0]} holds no points")
    written = draw(records, out)
    say(f"Written to {out}: {', '.join(path.name for path in written)}.")
