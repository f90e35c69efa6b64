"""`lorikeet bench`: load tests, sweeps, and the figures of what they recorded."""

import typer

app = typer.Typer(help="Load a server, sweep a setting, draw what came of it.", no_args_is_help=True)
