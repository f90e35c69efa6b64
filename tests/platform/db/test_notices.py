"""What one process changes of keys is heard by the others: by NOTIFY on Postgres, at once within a process (R-11)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field

import pytest
from sqlalchemy import create_engine, text

from lorikeet_platform.api_keys.revoking import revoke_key
from lorikeet_platform.api_keys.service import create_key, rotate_key
from lorikeet_platform.auth import notices
from lorikeet_platform.auth.actor import ADMINISTRATOR, Actor
from lorikeet_platform.auth.api_keys import Authenticator
from lorikeet_platform.auth.notices import CHANNEL, Notice, NoticeBoard, announce
from lorikeet_platform.auth.pepper import Pepper
from lorikeet_platform.db.session import Database
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.tenants.service import create_tenant, resume_tenant, suspend_tenant

PEPPER = Pepper(1, {1: b"p" * 32})
SOON_S = 5.0


@dataclass
class Process:
    """What a gateway has of its own: connections, a board, and a memory of keys."""

    db: Database
    heard: list[Notice] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    n_gaps: int = 0

    def __post_init__(self) -> None:
        self.board = NoticeBoard(self.db, on_late=self.late.append)
        self.authenticator = Authenticator(self.db, PEPPER, self.board)
        self.board.subscribe(self.heard.append, on_gap=self._note_gap)

    def _note_gap(self) -> None:
        self.n_gaps += 1

    def accepts(self, secret: str) -> str:
        try:
            asyncio.run(self.authenticator.authenticate(f"Bearer {secret}"))
        except PlatformError as error:
            return error.code
        return "ok"

    def has_heard(self, reason: str) -> bool:
        return any(notice.reason == reason for notice in self.heard)


@dataclass(frozen=True)
class Key:
    tenant_id: str
    id: str
    secret: str


def a_key(db: Database, slug: str = "harbour") -> Key:
    with db.platform.unit_of_work() as work:
        tenant = create_tenant(work, slug=slug, display_name=None, now=1)
        key, secret = create_key(work, PEPPER, tenant_id=tenant.id, name="first", now=1)
        return Key(tenant.id, key.id, secret)


def revoke(db: Database, key: Key) -> None:
    with db.tenant(key.tenant_id).unit_of_work() as work:
        actor = Actor(key.tenant_id, ADMINISTRATOR)
        revoke_key(work, key.id, actor=actor, now=time.time_ns() // 1000)


def wait_for(is_so: Callable[[], bool]) -> float:
    """How long it took until it was so."""
    started = time.monotonic()
    while not is_so():
        assert time.monotonic() - started < SOON_S
        time.sleep(0.005)
    return time.monotonic() - started


@contextmanager
def a_process(url: str) -> Iterator[Process]:
    process = Process(Database(url))
    process.board.start()
    wait_for(lambda: process.n_gaps > 0)  # it listens, and forgets what was before
    yield process
    process.board.stop()
    process.db.close()


def test_a_revocation_is_heard_at_once_in_its_own_process(database: Database) -> None:
    process, key = Process(database), a_key(database)
    assert process.accepts(key.secret) == "ok"
    revoke(database, key)
    assert [(notice.key_id, notice.reason) for notice in process.heard] == [(key.id, "key_revoked")]
    assert process.accepts(key.secret) == "invalid_api_key"


def test_what_is_not_committed_is_not_announced(database: Database) -> None:
    process, key = Process(database), a_key(database)

    def revoke_and_fail() -> None:
        with database.tenant(key.tenant_id).unit_of_work() as work:
            revoke_key(work, key.id, actor=Actor(key.tenant_id, ADMINISTRATOR), now=2)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        revoke_and_fail()
    assert process.heard == []
    assert process.accepts(key.secret) == "ok"


def test_a_savepoint_that_is_released_tells_nothing_yet(database: Database) -> None:
    process, key = Process(database), a_key(database)
    with database.platform.unit_of_work() as work:
        announce(work, Notice(key.tenant_id, None, "changed"))
        with work.begin_nested():
            announce(work, Notice(key.tenant_id, key.id, "changed"))
        assert process.heard == []
    assert [notice.key_id for notice in process.heard] == [None, key.id]


def test_what_was_announced_in_a_savepoint_goes_with_it(database: Database) -> None:
    process, key = Process(database), a_key(database)
    with database.platform.unit_of_work() as work:
        announce(work, Notice(key.tenant_id, None, "changed"))
        outer = work.begin_nested()
        with work.begin_nested():
            announce(work, Notice(key.tenant_id, key.id, "key_revoked"))
        outer.rollback()
        announce(work, Notice(key.tenant_id, "last", "changed"))
    assert [notice.key_id for notice in process.heard] == [None, "last"]


def test_a_transaction_that_fails_after_a_savepoint_tells_nothing(database: Database) -> None:
    process, key = Process(database), a_key(database)

    def announce_and_fail() -> None:
        with database.platform.unit_of_work() as work:
            announce(work, Notice(key.tenant_id, None, "changed"))
            with work.begin_nested():
                pass
            raise RuntimeError

    with pytest.raises(RuntimeError):
        announce_and_fail()
    assert process.heard == []


def test_what_a_process_told_itself_is_not_told_again_when_it_comes_back(database: Database) -> None:
    """Usually: what comes back before the commit's own thread went on is told twice, which does no harm."""
    process, key = Process(database), a_key(database)
    notice = Notice(key.tenant_id, key.id, "key_revoked", 1)
    with database.platform.unit_of_work() as work:
        announce(work, notice)
    assert process.heard == [notice]
    process.board._take(json.dumps({"id": process.board._told[-1], **asdict(notice)}))
    assert process.heard == [notice]
    assert len(process.late) == 1  # how late it came is told all the same
    process.board._take(json.dumps({"id": "of another process", **asdict(notice)}))
    assert process.heard == [notice] * 2


@pytest.mark.slow
def test_a_listener_that_fails_to_forget_does_not_end_the_listening(postgres: Database, migrated_postgres: str) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    process = Process(Database(migrated_postgres))
    process.board._listeners.insert(0, (lambda _notice: None, fail))
    process.board.start()
    wait_for(lambda: process.n_gaps > 0)
    assert process.n_gaps == 1
    key = a_key(postgres)
    revoke(postgres, key)
    wait_for(lambda: process.has_heard("key_revoked"))
    process.board.stop()
    process.db.close()


@pytest.mark.slow
def test_a_mistake_in_the_listening_thread_does_not_end_it(
    postgres: Database, migrated_postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "RETRY_S", 0.05)
    with a_process(migrated_postgres) as process:
        with monkeypatch.context() as patch:
            patch.setattr(process.board, "_take", lambda _payload: 1 / 0)
            gaps, key = process.n_gaps, a_key(postgres)
            revoke(postgres, key)
            wait_for(lambda: process.n_gaps > gaps)
        wait_for(lambda: process.has_heard("key_revoked"))  # read from its table, like after any gap


def test_a_listener_that_fails_does_not_fail_the_change(database: Database) -> None:
    process, key = Process(database), a_key(database)
    process.board.subscribe(lambda _notice: 1 / 0)  # type: ignore[arg-type]
    revoke(database, key)
    assert process.accepts(key.secret) == "invalid_api_key"


def test_suspension_rotation_and_resumption_are_heard(database: Database) -> None:
    process, key = Process(database), a_key(database)
    assert process.accepts(key.secret) == "ok"
    with database.platform.unit_of_work() as work:
        suspend_tenant(work, "harbour", 2)
    assert process.accepts(key.secret) == "tenant_suspended"
    with database.platform.unit_of_work() as work:
        resume_tenant(work, "harbour", 3)
    assert process.accepts(key.secret) == "ok"
    with database.tenant(key.tenant_id).unit_of_work() as work:
        actor = Actor(key.tenant_id, ADMINISTRATOR)
        rotate_key(work, PEPPER, key.id, overlap_hours=0, actor=actor, now=time.time_ns() // 1000)
    assert process.accepts(key.secret) == "invalid_api_key"
    assert [notice.reason for notice in process.heard] == ["tenant_suspended", "changed", "changed"]


@pytest.mark.slow
def test_n17_a_revocation_reaches_another_process_in_less_than_a_second(
    postgres: Database, migrated_postgres: str
) -> None:
    with a_process(migrated_postgres) as here, a_process(migrated_postgres) as there:
        delays = []
        for number in range(10):
            key = a_key(here.db, f"tenant-{number}")
            assert (here.accepts(key.secret), there.accepts(key.secret)) == ("ok", "ok")
            there.heard.clear()
            revoke(here.db, key)
            delays.append(wait_for(lambda: there.has_heard("key_revoked")))
            assert there.accepts(key.secret) == here.accepts(key.secret) == "invalid_api_key"
        assert max(delays) < 1
        assert len(there.late) == 10
        assert max(there.late) < 1


@pytest.mark.slow
def test_a_connection_that_was_lost_makes_up_for_what_it_missed(postgres: Database, migrated_postgres: str) -> None:
    with a_process(migrated_postgres) as there:
        key, other = a_key(postgres), a_key(postgres, "orchard")
        for secret in (key.secret, other.secret):
            assert there.accepts(secret) == "ok"
        gaps = there.n_gaps
        _end_listeners(migrated_postgres)
        with postgres.platform.unit_of_work() as work:
            suspend_tenant(work, "orchard", time.time_ns() // 1000)
        revoke(postgres, key)
        wait_for(lambda: there.has_heard("key_revoked") and there.has_heard("tenant_suspended"))
        assert there.n_gaps > gaps
        assert there.accepts(key.secret) == "invalid_api_key"
        assert there.accepts(other.secret) == "tenant_suspended"


@pytest.mark.slow
def test_a_notice_that_cannot_be_read_makes_a_process_forget_everything(
    postgres: Database, migrated_postgres: str
) -> None:
    with a_process(migrated_postgres) as there:
        key, gaps = a_key(postgres), there.n_gaps
        assert there.accepts(key.secret) == "ok"
        for payload in ("", "{", "[]", '{"tenant_id": 1}', '{"a": "b"}'):
            with postgres.engine.begin() as connection:
                connection.execute(
                    text("SELECT pg_notify(:channel, :payload)"), {"channel": CHANNEL, "payload": payload}
                )
        wait_for(lambda: there.n_gaps == gaps + 5)
        with postgres.platform.unit_of_work() as work:
            announce(work, Notice(key.tenant_id, None, "changed"))
        wait_for(lambda: there.has_heard("changed"))


@pytest.mark.slow
def test_a_board_begins_to_hear_when_its_database_comes_late(postgres: Database, migrated_postgres: str) -> None:
    with a_process(migrated_postgres) as there:
        gaps = there.n_gaps
        _end_listeners(migrated_postgres)
        wait_for(lambda: there.n_gaps > gaps)


def _end_listeners(url: str) -> None:
    """Cut the connections of this database that do nothing but listen."""
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        ended = connection.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND query LIKE 'LISTEN %'"
            )
        ).all()
    engine.dispose()
    assert ended
