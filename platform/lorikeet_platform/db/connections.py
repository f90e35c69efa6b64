"""Engines for SQLite and Postgres, and how their transactions begin: with what the transaction may see.

Whoever begins a transaction names its scope in the connection's options. On Postgres the role and the tenant travel
with BEGIN, in one message; both end with the transaction, so a pooled connection carries nothing over. A connection
without a scope begins a plain transaction, with the rights of its login: the migrations do.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import InvalidatePoolError

BUSY_TIMEOUT_MS = 5_000
CHECKOUT_TIMEOUT_S = 2.0  # a full pool answers 503 soon, instead of queueing requests behind it
# A server that is gone without a word is noticed in about ten seconds, idle or asked; an address may say otherwise.
POSTGRES_BOUNDS: Final = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
PING_AFTER_S: Final = 1.0  # a connection that idled longer is tried before it is used
# Roles on Postgres, made by the migrations: they own nothing and cannot bypass row-level security.
TENANT_ROLE: Final = "lorikeet_app"
PLATFORM_ROLE: Final = "lorikeet_platform"
SCOPE: Final = "lorikeet_scope"  # option of a connection: a tenant's id, or `ALL_TENANTS`
READS_ONLY: Final = "lorikeet_reads_only"  # option of a connection
ALL_TENANTS: Final = "*"
_ID: Final = re.compile(r"[a-z0-9_]{1,32}")
_IDLE_SINCE: Final = "lorikeet_idle_since"


def open_engine(url: str) -> Engine:
    parsed = make_url(url)
    is_sqlite = parsed.get_backend_name() == "sqlite"
    if is_sqlite and parsed.database:
        Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
    # hide_parameters: an error's text reaches the log, its values must not
    engine = create_engine(
        parsed,
        hide_parameters=True,
        pool_timeout=CHECKOUT_TIMEOUT_S,
        pool_size=10,
        max_overflow=30,
        connect_args=bounds_of(parsed),
    )
    if is_sqlite:
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    else:
        event.listen(engine, "connect", _prepare_postgres)
        event.listen(engine, "begin", _begin_postgres)
        event.listen(engine, "do_execute_no_params", _execute_together)
        _ping_after_idling(engine)
    return engine


def bounds_of(url: URL) -> dict[str, int]:
    """What is said to the driver about how long it may wait for the other end."""
    if url.get_backend_name() != "postgresql":
        return {}
    return {name: value for name, value in POSTGRES_BOUNDS.items() if name not in url.query}


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # we send BEGIN ourselves, below
    cursor = connection.cursor()
    for pragma in (
        f"busy_timeout={BUSY_TIMEOUT_MS}",
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    reads_only = connection.get_execution_options().get(READS_ONLY, False)
    connection.exec_driver_sql("BEGIN" if reads_only else "BEGIN IMMEDIATE")


def _prepare_postgres(connection: Any, _record: object) -> None:
    connection.autocommit = True  # we send BEGIN ourselves, below; COMMIT and ROLLBACK stay the driver's


def _begin_postgres(connection: Connection) -> None:
    options = connection.get_execution_options()
    scope = options.get(SCOPE)
    statements = ["BEGIN READ ONLY" if options.get(READS_ONLY, False) else "BEGIN"]
    if scope == ALL_TENANTS:
        statements.append(f"SET LOCAL ROLE {PLATFORM_ROLE}")
    elif scope is not None:
        if _ID.fullmatch(scope) is None:  # it becomes a part of the statement
            raise ValueError("not the id of a tenant")
        statements += [f"SET LOCAL ROLE {TENANT_ROLE}", f"SET LOCAL app.tenant_id = '{scope}'"]
    connection.exec_driver_sql("; ".join(statements), execution_options={"no_parameters": True})


def _execute_together(cursor: Any, statement: str, _context: object) -> bool:
    """Several statements in one message cannot be prepared, which the driver would try after a few times."""
    cursor.execute(statement, prepare=False)
    return True


def _ping_after_idling(engine: Engine) -> None:
    """To try every connection at every use costs as much as the transaction's beginning."""

    def remember(_connection: object, record: Any) -> None:
        record.info[_IDLE_SINCE] = time.monotonic()

    def try_when_old(connection: Any, record: Any, _proxy: object) -> None:
        idle_since = record.info.get(_IDLE_SINCE)
        if idle_since is None or time.monotonic() - idle_since < PING_AFTER_S:
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise InvalidatePoolError from error

    event.listen(engine, "checkin", remember)
    event.listen(engine, "checkout", try_when_old)
