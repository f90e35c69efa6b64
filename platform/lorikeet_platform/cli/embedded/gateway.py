"""The gateway process: both listeners, and with the in-memory broker the worker's threads too.

On SIGTERM or SIGINT running answers get a few seconds, what is left is told so, and both listeners close.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import structlog
import uvicorn
import uvloop
from celery.exceptions import SecurityWarning
from starlette.types import ASGIApp

from lorikeet_adapters.store.opening import open_store
from lorikeet_engine.client import EngineClient
from lorikeet_platform.app import build_context, create_admin_app, create_tenant_app
from lorikeet_platform.cli.console import CommandFailed, ExitCode
from lorikeet_platform.cli.embedded.addresses import admin_listener, api_listener
from lorikeet_platform.db.session import Database
from lorikeet_platform.inference.service import InferenceService
from lorikeet_platform.jobs.celery_app import MEMORY, create_celery, waker
from lorikeet_platform.settings import Settings
from lorikeet_platform.telemetry.logs import configure_logging
from lorikeet_platform.telemetry.tracing.tracer import TracingUnavailable
from lorikeet_platform.web.server import uvicorn_server
from lorikeet_platform.worker import Worker, build_worker, make_tools

DRAIN_S: Final = 3.0
# For connections that hold no answer any more, such as long polls.
CLOSE_S: Final = 1

log = structlog.get_logger(__name__)


class ManagedServer(uvicorn.Server):
    """A server that leaves the signals to us: two of them share this process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def run_gateway(settings: Settings, *, model_dir: Path) -> None:
    """Serve until a signal comes; raises CommandFailed for a port that is taken, or traces that cannot be sent."""
    configure_logging()
    quiet_celery()
    sockets = (api_listener(settings).open(), admin_listener(settings).open())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # a fifth less CPU a request
        try:
            runner.run(_serve(settings, model_dir, sockets))
        except TracingUnavailable as error:
            raise CommandFailed(ExitCode.USAGE, str(error)) from None
    gc.freeze()  # or the interpreter's end looks at every object once more, for half a second


async def _serve(settings: Settings, model_dir: Path, sockets: tuple[socket.socket, socket.socket]) -> None:
    db = Database(settings.resolved_database_url, platform_url=settings.database_platform_url)
    store = open_store(settings.store_address)
    client = EngineClient(endpoint=settings.engine_endpoint, model_dir=model_dir, key_file=settings.engine_key_file)
    celery = create_celery(settings)
    context = build_context(settings, db=db, store=store, engine_client=client, wake=waker(celery))
    tenant_app = create_tenant_app(context)
    servers = (_server(tenant_app, settings), _server(create_admin_app(context), settings))
    worker: Worker | None = None
    await client.start()
    try:
        if settings.broker_url.startswith(MEMORY):
            tools = make_tools(settings, model_dir=model_dir)
            worker = build_worker(settings, celery=celery, db=db, store=store, tools=tools)
            await asyncio.to_thread(worker.start)
        await _serve_until_signal(servers, sockets, tenant_app.state.inference.service, worker)
    finally:
        await client.stop()
        db.close()


async def _serve_until_signal(
    servers: tuple[uvicorn.Server, ...],
    sockets: tuple[socket.socket, ...],
    inference: InferenceService,
    worker: Worker | None,
) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    serving = [
        asyncio.ensure_future(server.serve(sockets=[bound])) for server, bound in zip(servers, sockets, strict=True)
    ]
    stopping = asyncio.ensure_future(stop.wait())
    log.info("listening", addresses=[":".join(map(str, bound.getsockname()[:2])) for bound in sockets])
    await asyncio.wait({stopping, *serving}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    log.info("draining")
    # Side by side: each takes seconds, and the whole stop has few.
    worker_stop = asyncio.ensure_future(asyncio.to_thread(worker.stop)) if worker is not None else None
    await inference.drain(DRAIN_S)
    for server in servers:
        server.should_exit = True
    await asyncio.gather(*serving)
    if worker_stop is not None:
        await worker_stop


def quiet_celery() -> None:
    """Two warnings that mean nothing here: jobs carry an id as JSON, never pickles, and `memory://` has no host."""
    warnings.filterwarnings("ignore", category=SecurityWarning)
    logging.getLogger("kombu.connection").setLevel(logging.ERROR)


def _server(app: ASGIApp, settings: Settings) -> ManagedServer:
    # Host and port are those of the sockets, which are bound before anything is built.
    config = uvicorn_server(app, "", 0, limits=settings.limits).config
    config.timeout_graceful_shutdown = CLOSE_S
    return ManagedServer(config)
