"""`lorikeet bench`: load tests, sweeps, and the figures of what they recorded."""

import typer

from lorikeet_platform.cli.commands.bench import report, serve, sweep

app = typer.Typer(help="Load a server, sweep a setting, draw what came of it.", no_args_is_help=True)
app.command("serve")(serve.serve)
app.command("sweep")(sweep.sweep)
app.command("report")(report.report)
