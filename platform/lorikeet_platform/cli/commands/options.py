"""Options that several commands share, each declared once."""

from __future__ import annotations

from typing import Annotated

import typer

API_URL = "LORIKEET_API_URL"
ADMIN_URL = "LORIKEET_ADMIN_URL"
DEFAULT_API_URL = "http://127.0.0.1:8000"
DEFAULT_ADMIN_URL = "http://127.0.0.1:8001"

ApiUrl = Annotated[str, typer.Option("--api-url", envvar=API_URL, help="Address of the tenant API.")]
AdminUrl = Annotated[str, typer.Option("--admin-url", envvar=ADMIN_URL, help="Address of the admin API.")]
OfTenant = Annotated[
    str | None,
    typer.Option("--tenant", metavar="SLUG", help="As administrator, for this tenant; without it, with your own key."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
