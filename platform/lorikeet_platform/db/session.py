"""Connections and transactions, the same for SQLite and Postgres.

`Database.unit_of_work` is one write transaction, committed at its end; `read` is one read transaction. Services get
the session and never commit. On SQLite a write begins with BEGIN IMMEDIATE, so that two writers queue at the start
instead of failing when a reader becomes a writer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

BUSY_TIMEOUT_MS = 5_000
CHECKOUT_TIMEOUT_S = 2.0  # a full pool answers 503 soon, instead of queueing requests behind it


class Database:
    """One database, by its SQLAlchemy address."""

    def __init__(self, url: str) -> None:
        parsed = make_url(url)
        self.is_sqlite = parsed.get_backend_name() == "sqlite"
        if self.is_sqlite and parsed.database:
            Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
        # hide_parameters: an error's text reaches the log, its values must not
        self.engine: Engine = create_engine(
            parsed,
            hide_parameters=True,
            pool_timeout=CHECKOUT_TIMEOUT_S,
            pool_size=10,
            max_overflow=30,
            pool_pre_ping=not self.is_sqlite,
        )
        if self.is_sqlite:
            event.listen(self.engine, "connect", _prepare_sqlite)
            event.listen(self.engine, "begin", _begin_sqlite)
        self._reading = self.engine.execution_options(lorikeet_reads_only=True)

    @contextmanager
    def unit_of_work(self) -> Iterator[Session]:
        """A write transaction: committed when the block ends, rolled back when it raises."""
        with Session(self.engine, expire_on_commit=False) as session, session.begin():
            yield session

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A read transaction; nothing of it is kept."""
        with Session(self._reading, expire_on_commit=False, autoflush=False) as session:
            yield session

    def is_reachable(self) -> bool:
        try:
            with self.read() as session:
                session.execute(text("SELECT 1"))
        except SQLAlchemyError:
            return False
        return True

    def close(self) -> None:
        self.engine.dispose()


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
    reads_only = connection.get_execution_options().get("lorikeet_reads_only", False)
    connection.exec_driver_sql("BEGIN" if reads_only else "BEGIN IMMEDIATE")
