"""`lorikeet jobs`: work that outlives requests, and the regular chores."""

from __future__ import annotations

from typing import Annotated

import typer

from lorikeet_platform.cli.commands.options import DEFAULT_ADMIN_URL, AdminUrl, AsJson
from lorikeet_platform.cli.console import day_and_time, print_json, print_table, say, segment

app = typer.Typer(help="Look at jobs and chores, and try failed jobs again.", no_args_is_help=True)


@app.command("list")
def list_jobs(
    state: Annotated[str | None, typer.Option("--state", help="queued, leased, done or failed.")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", metavar="SLUG", help="Of this tenant only.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="The newest so many.")] = 50,
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
    as_json: AsJson = False,
) -> None:
    """List jobs, the newest first."""
    from lorikeet_platform.cli.api import admin_api
    from lorikeet_platform.cli.side import Side

    filters = {name: value for name, value in (("state", state), ("tenant", tenant)) if value is not None}
    with admin_api(admin_url) as api:
        jobs = Side(api, "/admin/v1").pages("/jobs", limit=limit, **filters)
    if as_json:
        print_json(jobs)
        return
    rows = [
        (
            j["id"],
            j["kind"],
            j["tenant"],
            j["state"],
            f"{j['attempt']}/{j['max_attempts']}",
            j["last_error"],
            day_and_time(j["created_at"]),
        )
        for j in jobs
    ]
    print_table(("ID", "KIND", "TENANT", "STATE", "TRIES", "ERROR", "CREATED"), rows, empty="No jobs.")


@app.command("retry")
def retry(
    job_id: Annotated[str, typer.Argument(help="A failed job's id (job_…).")],
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
    as_json: AsJson = False,
) -> None:
    """Try a failed job again."""
    from lorikeet_platform.cli.api import admin_api

    with admin_api(admin_url) as api:
        job = api.post(f"/admin/v1/jobs/{segment(job_id)}/retry")
    if as_json:
        print_json(job)
    else:
        say(f"Job {job['id']} is {job['state']}.")


@app.command("chores")
def chores(admin_url: AdminUrl = DEFAULT_ADMIN_URL, as_json: AsJson = False) -> None:
    """List what is done regularly: when last, when next, and how it went."""
    from lorikeet_platform.cli.api import admin_api

    with admin_api(admin_url) as api:
        found = api.get("/admin/v1/chores")["data"]
    if as_json:
        print_json(found)
        return
    rows = [(c["name"], day_and_time(c["finished_at"]), day_and_time(c["due_at"]), c["error"]) for c in found]
    print_table(("CHORE", "LAST DONE", "NEXT", "ERROR"), rows, empty="No worker has run yet.")
