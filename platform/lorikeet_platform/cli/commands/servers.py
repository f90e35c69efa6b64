"""`lorikeet up`, and its parts one by one for installations that run them apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lorikeet_platform.cli.commands.options import DEFAULT_ADMIN_URL, AdminUrl
from lorikeet_platform.cli.console import CommandFailed, ExitCode

if TYPE_CHECKING:
    from pathlib import Path

    from lorikeet_platform.settings import Settings

Model = Annotated[
    str | None, typer.Option("--model", help="Base model: a directory, package:NAME or a hub id [LORIKEET_MODEL].")
]

Quantization = Annotated[
    Literal["none", "int8"] | None,
    typer.Option("--quantization", help="int8: 8-bit weights, on a CPU [LORIKEET_ENGINE__QUANTIZATION]."),
]


def add_to(app: typer.Typer) -> None:
    for command in (up, gateway, engine, worker):
        app.command()(command)
    app.command("engine-key")(engine_key)
    app.command("owner-link")(owner_link)


def up(
    demo: Annotated[bool, typer.Option("--demo", help="Make two demo tenants with adapters.")] = False,
    model: Model = None,
    quantization: Quantization = None,
) -> None:
    """Run everything on this machine: engine, gateway, worker."""
    from lorikeet_platform.cli.configuration import load_settings
    from lorikeet_platform.cli.embedded.up import up as run_up

    run_up(load_settings(model=model, quantization=quantization), demo=demo)


def gateway(model: Model = None) -> None:
    """Run the gateway: tenant API, admin API and dashboard."""
    from lorikeet_platform.cli.embedded.gateway import run_gateway

    settings, model_dir = _with_endpoint(model)
    run_gateway(settings, model_dir=model_dir)


def engine(
    model: Model = None,
    quantization: Quantization = None,
    profile: Annotated[
        int | None, typer.Option("--profile", metavar="N", min=1, help="Write a timeline of N steps; slower.")
    ] = None,
) -> None:
    """Run one engine; the gateway finds it at LORIKEET_ENGINE_ENDPOINT."""
    import os

    from lorikeet_platform.cli.embedded.engine_child import profiling, write_engine_config

    settings, model_dir = _with_endpoint(model, quantization)
    command = write_engine_config(
        settings,
        model_dir=model_dir,
        endpoint=settings.engine_endpoint,
        path=settings.temporary_dir / f"engine-{settings.engine.health_port}.json",
    )
    if profile is not None:
        command += profiling(profile, settings.temporary_dir)
    os.execv(command[0], command)


def engine_key() -> None:
    """Print new keys for the engine's tcp socket, one file for both sides [LORIKEET_ENGINE_KEY_FILE]."""
    from lorikeet_engine.socket_keys import SocketKeys

    typer.echo(SocketKeys.generate().text(), nl=False)


def owner_link(admin_url: AdminUrl = DEFAULT_ADMIN_URL) -> None:
    """Print a link that signs the owner in to the dashboard, once and within an hour; earlier links are void."""
    from lorikeet_platform.cli.configuration import load_settings
    from lorikeet_platform.cli.embedded.welcome import new_owner_token
    from lorikeet_platform.cli.embedded.welcome import owner_link as link

    typer.echo(link(admin_url.rstrip("/"), new_owner_token(load_settings())))


def worker(model: Model = None) -> None:
    """Run one worker; it needs a broker that other processes can reach, and the engine."""
    from lorikeet_platform.cli.embedded.worker import run_worker

    settings, model_dir = _with_endpoint(model)
    run_worker(settings, model_dir=model_dir)


def _with_endpoint(model: str | None, quantization: str | None = None) -> tuple[Settings, Path]:
    settings, model_dir = _prepared(model, quantization)
    if not settings.engine_endpoint:
        raise CommandFailed(ExitCode.USAGE, "set LORIKEET_ENGINE_ENDPOINT (ipc://… or tcp://…), or use `lorikeet up`")
    return settings, model_dir


def _prepared(model: str | None, quantization: str | None = None) -> tuple[Settings, Path]:
    import asyncio

    from lorikeet_platform.cli.configuration import load_settings
    from lorikeet_platform.cli.embedded.model import prepared_model

    settings = load_settings(model=model, quantization=quantization)
    return settings, asyncio.run(prepared_model(settings))
