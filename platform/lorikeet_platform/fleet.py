"""The gateways that are alive: each has a row, says every five seconds that it is there, and goes with a word.

What a gateway admitted is its own to settle while it is seen; how many there are divides the limits when they cannot be
counted together. Only rows are known here, neither requests nor limits.
"""

from __future__ import annotations

import threading
from typing import Final

import structlog
from sqlalchemy import delete, func, select, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from lorikeet_platform.clock import SECOND, Clock, now_us
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import Gateway
from lorikeet_platform.ids import new_id

log = structlog.get_logger(__name__)

BEAT_EVERY_S: Final = 5.0
ALIVE_US: Final = 15 * SECOND  # three beats
FORGOTTEN_US: Final = 600 * SECOND  # long after everything that a dead gateway admitted was settled by others
STOP_S: Final = 2.0
_NO_SYNC: Final = {"synchronize_session": False}


class GatewayPresence:
    """This gateway's row, kept by a thread of its own: a busy event loop is no sign of death.

    Attributes:
        gateway_id: new with every process.
    """

    def __init__(self, db: Database, *, clock: Clock = now_us) -> None:
        self.gateway_id = new_id("gwy")
        self._db, self._clock = db, clock
        self._live = 1
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def live(self) -> int:
        """How many gateways lived at the last beat that reached the database; at least this one. Asks nobody."""
        return self._live

    def start(self) -> None:
        """A database that does not answer holds no start up: the row comes with the first beat that reaches it."""
        self._is_over.clear()
        self.beat()
        self._thread = threading.Thread(target=self._keep, name="gateway-presence", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Take the row away; what this gateway admitted and has not settled is anybody's from now on."""
        self._is_over.set()
        if self._thread is not None:
            self._thread.join(STOP_S)
            self._thread = None
        try:
            with self._db.platform.unit_of_work() as work:
                work.execute(delete(Gateway).where(Gateway.id == self.gateway_id), execution_options=_NO_SYNC)
        except SQLAlchemyError as error:
            log.warning("this gateway's row stays until it is forgotten", error=type(error).__name__)

    def beat(self) -> None:
        """Say that this gateway is there, and count the others."""
        now = self._clock()
        try:
            with self._db.platform.unit_of_work() as work:
                mine = update(Gateway).where(Gateway.id == self.gateway_id).values(seen_at=now)
                if work.scalar(mine.returning(Gateway.id), execution_options=_NO_SYNC) is None:
                    work.add(Gateway(id=self.gateway_id, started_at=now, seen_at=now))
                    work.flush()
                self._live = max(1, count_live(work, now))
        except SQLAlchemyError as error:
            log.warning("this gateway cannot say that it is there", error=type(error).__name__)

    def _keep(self) -> None:
        while not self._is_over.wait(BEAT_EVERY_S):
            self.beat()


def count_live(work: Session, now: int) -> int:
    """Gateways that were seen within three beats."""
    return work.scalar(select(func.count()).select_from(Gateway).where(Gateway.seen_at > now - ALIVE_US)) or 0


def forget_dead(work: Session, now: int) -> int:
    """Rows of gateways that ended without a word, long ago; returns how many."""
    dead = delete(Gateway).where(Gateway.seen_at <= now - FORGOTTEN_US).returning(Gateway.id)
    return len(work.scalars(dead, execution_options=_NO_SYNC).all())
