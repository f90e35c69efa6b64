"""Celery, configured: JSON only, one task that carries a job id, late acknowledgement, no results.

`memory://` lives in one process, for gateway and worker thread together; any other broker is between processes. A
broker is a doorbell: whatever it loses, or cannot take, a sweeper sends again.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable

from celery import Celery

from lorikeet_platform.settings import Settings

log = logging.getLogger(__name__)

TASK = "lorikeet.run_job"
QUEUE = "lorikeet-jobs"
MEMORY = "memory://"
POLL_S = 0.05  # the in-memory broker is polled; once a second by default
# A message that nobody acknowledged comes again after this time. Leases make that harmless, and sweepers are faster.
VISIBILITY_TIMEOUT_S = 600
ANSWER_S, CONNECT_S, SILENCE_S = 5.0, 2.0, 10.0  # a Redis that hangs, or is gone without a word, is given up
PAUSE_S = 5.0  # after a message that could not be sent
MAX_WAITING = 1_000

Waker = Callable[[str], None]


def create_celery(settings: Settings) -> Celery:
    app = Celery("lorikeet", set_as_current=False)
    app.conf.update(
        broker_url=settings.broker_url,
        broker_transport_options=_transport_options(settings.broker_url),
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
        broker_connection_max_retries=None,
        broker_connection_timeout=CONNECT_S,
    )
    return app


def waker(celery: Celery) -> Waker:
    """Sends a job's id to whatever worker is free, from a thread of its own: nobody waits for a broker."""
    return _Messenger(celery).wake


class _Messenger:
    """What waits for a broker that does not answer is bounded and may be dropped: the sweeper sends again."""

    def __init__(self, celery: Celery) -> None:
        self._celery = celery
        self._waiting: queue.Queue[str] = queue.Queue(MAX_WAITING)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._paused_until = 0.0

    def wake(self, job_id: str) -> None:
        if self._thread is None:
            self._start()
        try:
            self._waiting.put_nowait(job_id)
        except queue.Full:
            log.warning("the broker is behind; job %s waits for the sweeper", job_id)

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._send_all, name="waker", daemon=True)
                self._thread.start()

    def _send_all(self) -> None:
        while True:
            job_id = self._waiting.get()
            if time.monotonic() < self._paused_until:
                continue
            try:
                self._celery.send_task(TASK, args=[job_id], retry=False)
            except Exception as error:  # each transport has errors of its own, and none of them is ours
                self._paused_until = time.monotonic() + PAUSE_S
                log.warning("the broker does not answer (%s); jobs wait for the sweeper", type(error).__name__)


def _transport_options(broker_url: str) -> dict[str, object]:
    if broker_url.startswith(MEMORY):
        return {"polling_interval": POLL_S}
    if broker_url.startswith("redis"):
        return {
            "visibility_timeout": VISIBILITY_TIMEOUT_S,
            "socket_timeout": ANSWER_S,
            "socket_connect_timeout": CONNECT_S,
            "socket_keepalive": True,
            "health_check_interval": SILENCE_S,
        }
    return {}
