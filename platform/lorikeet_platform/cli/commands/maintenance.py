"""`lorikeet db` and `lorikeet config`."""

from __future__ import annotations

from typing import Any

import typer

from lorikeet_platform.cli.commands.options import AsJson
from lorikeet_platform.cli.console import print_json, print_table, say

db = typer.Typer(help="Prepare the database.", no_args_is_help=True)
config = typer.Typer(help="Look at the settings.", no_args_is_help=True)


@db.callback()
def _db_group() -> None:
    """Keeps `upgrade` a sub-command; Typer would fold a group of one into its parent."""


@config.callback()
def _config_group() -> None:
    """Keeps `show` a sub-command."""


@db.command("upgrade")
def upgrade() -> None:
    """Bring the database to the schema of this version."""
    from lorikeet_platform.cli.configuration import load_settings
    from lorikeet_platform.db.migrate import upgrade as upgrade_schema

    settings = load_settings()
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    upgrade_schema(settings.resolved_database_url)
    say("The database is up to date.")


@config.command("show")
def show(as_json: AsJson = False) -> None:
    """Print every setting in force; passwords in addresses are left out."""
    from lorikeet_platform.cli.configuration import load_settings, redacted

    values = redacted(load_settings())
    if as_json:
        print_json(values)
    else:
        print_table(("SETTING", "VALUE"), list(_flat(values)), empty="")


def _flat(values: dict[str, Any], prefix: str = "LORIKEET_") -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = []
    for name, value in values.items():
        path = prefix + name.upper()
        rows += _flat(value, path + "__") if isinstance(value, dict) else [(path, value)]
    return rows
