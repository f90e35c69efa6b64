"""The worker as a process of its own, for brokers between processes."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import structlog

from lorikeet_adapters.store.opening import open_store
from lorikeet_platform.cli.console import CommandFailed, ExitCode
from lorikeet_platform.db.session import Database
from lorikeet_platform.jobs.celery_app import MEMORY, create_celery
from lorikeet_platform.settings import Settings
from lorikeet_platform.telemetry.logs import configure_logging
from lorikeet_platform.worker import build_worker, make_tools

log = structlog.get_logger(__name__)


def run_worker(settings: Settings, *, model_dir: Path) -> None:
    """Work until SIGINT or SIGTERM; raises CommandFailed."""
    if settings.broker_url.startswith(MEMORY):
        raise CommandFailed(
            ExitCode.USAGE,
            "the in-memory broker works inside the gateway only; for a separate worker set LORIKEET_BROKER_URL",
        )
    configure_logging()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: stop.set())
    db = Database(settings.resolved_database_url, platform_url=settings.database_platform_url)
    tools = make_tools(settings, model_dir=model_dir)
    store = open_store(settings.store_address)
    worker = build_worker(settings, celery=create_celery(settings), db=db, store=store, tools=tools)
    worker.start()
    log.info("waiting for jobs")
    stop.wait()
    worker.stop()
    db.close()
