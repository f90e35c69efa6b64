"""Celery, configured: JSON only, one task that carries a job id, late acknowledgement, no results.

`memory://` lives in one process, for gateway and worker thread together; any other broker is between processes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from celery import Celery
from kombu.exceptions import OperationalError

from lorikeet_platform.settings import Settings

log = logging.getLogger(__name__)

TASK = "lorikeet.run_job"
QUEUE = "lorikeet-jobs"
MEMORY = "memory://"
POLL_S = 0.05  # the in-memory broker is polled; once a second by default

Waker = Callable[[str], None]


def create_celery(settings: Settings) -> Celery:
    app = Celery("lorikeet", set_as_current=False)
    app.conf.update(
        broker_url=settings.broker_url,
        task_ignore_result=True,
        task_default_queue=QUEUE,
        task_serializer="json",
        accept_content=["json"],
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        broker_connection_retry_on_startup=True,
        broker_connection_timeout=2.0,
    )
    if settings.broker_url.startswith(MEMORY):
        app.conf.broker_transport_options = {"polling_interval": POLL_S}
    return app


def waker(celery: Celery) -> Waker:
    """Sends a job's id to whatever worker is free. A silent broker is no error: the sweeper sends again."""

    def wake(job_id: str) -> None:
        try:
            celery.send_task(TASK, args=[job_id], retry=False)
        except OperationalError:
            log.warning("the broker does not answer; job %s waits for the sweeper", job_id)

    return wake
