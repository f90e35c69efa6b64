"""Word from one process to all others that what they remember of a key or a tenant is no longer so.

    announce(work, notice)   in the transaction that makes the change: told if, and only if, it is committed
    NoticeBoard(db)          tells the listeners of its process

On Postgres a notice travels by NOTIFY, and each board has a connection that listens. A connection that was lost may
have missed some: after it is back, listeners are told to forget everything, and revocations of the meantime are read
from their tables. Within a process notices are told at once after the commit, which is all that SQLite needs; of these,
what comes back from the database is not told again.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal
from weakref import WeakKeyDictionary, WeakSet

import psycopg
from sqlalchemy import Engine, NullPool, create_engine, event, select, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session, SessionTransaction

from lorikeet_platform.clock import MINUTE, SECOND, Clock, now_us
from lorikeet_platform.db.connections import bounds_of
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import ApiKey, Tenant

log = logging.getLogger(__name__)

CHANNEL: Final = "lorikeet_notices"
Reason = Literal["changed", "key_revoked", "tenant_suspended"]

WAKE_S: Final = 0.5  # how soon a listening thread sees that it is to stop
RETRY_S: Final = 1.0
STOP_S: Final = 2.0  # a thread that is just connecting is left behind
CLOCKS_DIFFER_US: Final = MINUTE  # at most, between machines: how much further back a lost connection's gap is read
TOLD_KEPT: Final = 1_000  # notices of our own that may still come back
_PENDING: Final = "lorikeet.notices"
_NOTIFY = text("SELECT pg_notify(:channel, :payload)")


@dataclass(frozen=True, slots=True)
class Notice:
    """What was changed: something of a tenant, or of one of its keys.

    Attributes:
        key_id: None = the tenant as a whole.
        at: when it was changed, for measuring how late the word arrives.
    """

    tenant_id: str
    key_id: str | None
    reason: Reason
    at: int = 0


@dataclass(frozen=True, slots=True)
class _Announced:
    """A notice that waits for its commit; `within` is the savepoint that it goes away with, if any."""

    notice: Notice
    id: str
    engine: Engine
    within: SessionTransaction | None


# Both are called in any thread and must return at once.
Listener = Callable[[Notice], None]
OnGap = Callable[[], None]

# Boards by the engine that a committing session writes with.
_boards: WeakKeyDictionary[Engine, WeakSet[NoticeBoard]] = WeakKeyDictionary()


class NoticeBoard:
    """One per process; `start` only where other processes share the database.

    Args:
        on_late: is told by how many seconds a revocation's notice from the database came after the revocation.
    """

    def __init__(
        self, db: Database, *, on_late: Callable[[float], None] = lambda _seconds: None, clock: Clock = now_us
    ) -> None:
        self._db, self._on_late, self._clock = db, on_late, clock
        self._listeners: list[tuple[Listener, OnGap]] = []
        self._stopping = threading.Event()
        self._heard_at = clock()
        self._told: deque[str] = deque(maxlen=TOLD_KEPT)
        self._thread: threading.Thread | None = None
        for engine in db.engines:
            _boards.setdefault(engine, WeakSet()).add(self)

    def subscribe(self, listener: Listener, *, on_gap: OnGap = lambda: None) -> None:
        """`on_gap` is called when notices may have been missed. Subscribe before `start`."""
        self._listeners.append((listener, on_gap))

    def start(self) -> None:
        """Listen to the database; nothing to do for SQLite, which has one process."""
        if not self._db.is_sqlite and self._thread is None:
            self._stopping.clear()
            self._thread = threading.Thread(target=self._listen, name="notices", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(STOP_S)
            self._thread = None

    def tell(self, notice: Notice) -> None:
        """Tell the listeners of this process alone."""
        for listener, _on_gap in self._listeners:
            try:
                listener(notice)
            except Exception:  # the change is made, and whoever made it must not be told otherwise
                log.exception("a notice was not heeded")

    def tell_own(self, notice: Notice, id_: str) -> None:
        """Tell of what this process has committed, once."""
        self._told.append(id_)
        self.tell(notice)

    def _listen(self) -> None:
        url = make_url(self._db.url)
        engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args=bounds_of(url))
        is_heard = False
        while not self._stopping.is_set():
            try:
                with engine.connect() as connection:
                    connection.execute(text(f"LISTEN {CHANNEL}"))
                    driver: Any = connection.connection.driver_connection
                    self._catch_up()
                    is_heard = True
                    self._hear(driver)
            except Exception as error:  # of whatever kind: without this thread revocations would be heard no more
                if not isinstance(error, SQLAlchemyError | psycopg.Error):
                    log.exception("notices are not heard")
                elif is_heard:
                    log.warning("notices are not heard: %s", type(error).__name__)
                is_heard = False
                self._stopping.wait(RETRY_S)

    def _hear(self, driver: psycopg.Connection[Any]) -> None:
        while not self._stopping.is_set():
            self._heard_at = self._clock()
            for heard in driver.notifies(timeout=WAKE_S, stop_after=1):
                self._take(heard.payload)

    def _take(self, payload: str) -> None:
        try:
            said = json.loads(payload)
            id_ = said.pop("id", None)
            notice = Notice(**said)
            late_s = max(0, self._clock() - notice.at) / SECOND
        except (ValueError, TypeError, AttributeError):  # not of ours, or of another version of ours
            log.warning("a notice cannot be read")
            self._tell_gap()
            return
        if notice.reason != "changed":
            self._on_late(late_s)
        if id_ not in self._told:
            self.tell(notice)

    def _tell_gap(self) -> None:
        for _listener, on_gap in self._listeners:
            try:
                on_gap()
            except Exception:  # the others are to forget all the same
                log.exception("a gap in the notices was not heeded")

    def _catch_up(self) -> None:
        """What was announced while nobody listened."""
        since = self._heard_at - CLOCKS_DIFFER_US
        keys = select(ApiKey.tenant_id, ApiKey.id, ApiKey.revoked_at).where(ApiKey.revoked_at >= since)
        tenants = select(Tenant.id, Tenant.suspended_at).where(Tenant.suspended_at >= since)
        self._tell_gap()
        with self._db.platform.read() as work:
            missed = [Notice(row.tenant_id, row.id, "key_revoked", row.revoked_at) for row in work.execute(keys)]
            missed += [Notice(row.id, None, "tenant_suspended", row.suspended_at) for row in work.execute(tenants)]
        for notice in missed:
            self.tell(notice)


def announce(work: Session, notice: Notice) -> None:
    """Tell every process of `notice` once `work` is committed."""
    connection = work.connection()
    announced = _Announced(notice, secrets.token_hex(8), connection.engine, work.get_nested_transaction())
    work.info.setdefault(_PENDING, []).append(announced)
    if connection.dialect.name == "postgresql":
        payload = json.dumps({"id": announced.id, **asdict(notice)})
        work.execute(_NOTIFY, {"channel": CHANNEL, "payload": payload})


@event.listens_for(Session, "after_commit")
def _tell_committed(session: Session) -> None:
    """Also called when a savepoint is released, which commits nothing yet."""
    if session.in_nested_transaction():
        return
    for announced in session.info.pop(_PENDING, ()):
        for board in list(_boards.get(announced.engine, ())):
            board.tell_own(announced.notice, announced.id)


@event.listens_for(Session, "after_soft_rollback")
def _drop_undone(session: Session, undone: SessionTransaction) -> None:
    pending = session.info.get(_PENDING)
    if pending:
        session.info[_PENDING] = [
            announced for announced in pending if undone.nested and undone not in _around(announced.within)
        ]


def _around(savepoint: SessionTransaction | None) -> Iterator[SessionTransaction]:
    while savepoint is not None:
        yield savepoint
        savepoint = savepoint.parent
