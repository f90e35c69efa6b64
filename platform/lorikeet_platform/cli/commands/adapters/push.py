"""`lorikeet adapters push`: a PEFT folder becomes a version."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from lorikeet_platform.cli.commands.adapters.certificates import certificate_summary
from lorikeet_platform.cli.commands.adapters.references import mebibytes
from lorikeet_platform.cli.commands.options import DEFAULT_API_URL, ApiUrl, AsJson
from lorikeet_platform.cli.console import CommandFailed, ExitCode, print_json, say


def push(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="What PEFT's save_pretrained wrote.")],
    name: Annotated[str, typer.Option("--name", help="The adapter's name; requests use it as their model.")],
    alias: Annotated[str | None, typer.Option("--alias", help="Move this alias to the new version when ready.")] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the version is ready or rejected.")] = True,
    timeout: Annotated[float, typer.Option("--timeout", min=1, help="Longest wait, in seconds.")] = 600,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="End what an interrupted push has begun; send everything.")
    ] = False,
    api_url: ApiUrl = DEFAULT_API_URL,
    as_json: AsJson = False,
) -> None:
    """Upload an adapter as a new version.

    An interrupted push continues where it stopped when the same command runs again, on this machine or on another.
    With --json, standard output gets the version and standard error a line of JSON for each event.

    Exit status: 0 ready, 2 usage, 3 key refused, 4 network, 5 local files, 6 rejected, 7 quota, 8 conflict,
    9 still validating after --timeout, 10 the server has other bytes, 130 interrupted.
    """
    from lorikeet_platform.cli.api import tenant_api
    from lorikeet_platform.cli.upload.push import PushRequest, push_adapter

    request = PushRequest(
        folder=folder, name=name, alias=alias, wait_s=timeout if wait else None, fresh=fresh, events=as_json
    )
    options = [
        *(["--alias", alias] if alias else []),
        *(["--api-url", api_url] if api_url != DEFAULT_API_URL else []),
    ]
    again = shlex.join(["lorikeet", "adapters", "push", str(folder), "--name", name, *options])
    try:
        with tenant_api(api_url) as api:
            version = push_adapter(api, request)
    except KeyboardInterrupt:
        raise CommandFailed(ExitCode.INTERRUPTED, f"interrupted; to continue: {again}") from None
    except CommandFailed as failure:
        if failure.exit_code == ExitCode.NETWORK:
            raise CommandFailed(failure.exit_code, f"{failure.message}; to continue: {again}") from None
        raise
    if as_json:
        print_json(version)
    report(version)


def report(version: dict[str, Any]) -> None:
    """Say how the push ended; raises CommandFailed unless it ended well."""
    label = f"{version['adapter']}:{version['number']}"
    for warning in version["warnings"]:
        say(f"warning: {warning}")
    match version["state"]:
        case "ready":
            say(
                f"{label} is ready: rank {version['rank']}, {mebibytes(version['serving_bytes'])} on the device"
                f"{certificate_summary(version['certificate'])}."
            )
        case "rejected" if version["reject_code"] == "checksum_mismatch":
            raise CommandFailed(ExitCode.INTEGRITY, f"{label}: {version['reject_detail']}")
        case "rejected":
            detail = f"{version['reject_code']}: {version['reject_detail']}"
            raise CommandFailed(ExitCode.REJECTED, f"{label} is rejected: {detail}")
        case "failed_internal":
            again = f"lorikeet adapters retry {shlex.quote(label)}"
            raise CommandFailed(
                ExitCode.NETWORK, f"{label} could not be checked, by no fault of its own; to check it again: {again}"
            )
        case _:
            say(f"{label} is uploaded and being checked: lorikeet adapters show {shlex.quote(version['adapter'])}")
