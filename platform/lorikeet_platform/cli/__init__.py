"""The command `lorikeet`: one file a group of commands in `commands/`.

Nothing here imports torch, and what takes long to import is imported inside the command that needs it.
"""

from __future__ import annotations

import sys
from typing import NoReturn

import typer

from lorikeet_platform.cli.commands import (
    adapters,
    audit,
    bench,
    chat,
    doctor,
    jobs,
    keys,
    limits,
    maintenance,
    plan,
    servers,
    simulate,
    tenants,
    usage,
)
from lorikeet_platform.cli.console import CommandFailed, say

app = typer.Typer(
    name="lorikeet",
    help="Serve one base model with every tenant's own LoRA adapters.",
    no_args_is_help=True,
    add_completion=False,
    # Its tracebacks print local variables, which may hold keys.
    pretty_exceptions_enable=False,
)
servers.add_to(app)
app.add_typer(maintenance.db, name="db")
app.add_typer(maintenance.config, name="config")
app.add_typer(tenants.app, name="tenants")
app.add_typer(keys.app, name="keys")
app.add_typer(limits.app, name="limits")
app.add_typer(limits.plans, name="plans")
app.add_typer(adapters.app, name="adapters")
app.add_typer(usage.app, name="usage")
app.add_typer(audit.app, name="audit")
app.add_typer(jobs.app, name="jobs")
app.command()(chat.chat)
app.command()(doctor.doctor)
app.command()(plan.plan)
app.command()(simulate.simulate)
app.add_typer(bench.app, name="bench")


def main() -> NoReturn:
    try:
        app()
    except CommandFailed as failure:
        say(f"lorikeet: {failure.message}")
        sys.exit(failure.exit_code)
    sys.exit(0)
