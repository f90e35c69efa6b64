"""Connections and transactions, the same for SQLite and Postgres, each bound to one tenant or named the platform's.

    db.tenant(tenant_id)    sees and writes rows of that tenant only, whatever a statement says
    db.platform             sees all tenants: sign-in, administration, the worker's rounds

On Postgres row-level security holds that: every transaction begins by taking a role without bypass and naming its
tenant, both for its own length. On SQLite the session adds the tenant to each query of the ORM, and refuses
rows of others.

`unit_of_work` is one write transaction, committed at its end; `read` is one read transaction. Services get the session
and never commit. On SQLite a write begins with BEGIN IMMEDIATE, so that two writers queue at the start instead of
failing when a reader becomes a writer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import ORMExecuteState, Session, UOWTransaction, with_loader_criteria

from lorikeet_platform.db.tables.metadata import TenantOwned

BUSY_TIMEOUT_MS = 5_000
CHECKOUT_TIMEOUT_S = 2.0  # a full pool answers 503 soon, instead of queueing requests behind it
# Roles on Postgres, made by the migrations: they own nothing and cannot bypass row-level security.
TENANT_ROLE: Final = "lorikeet_app"
PLATFORM_ROLE: Final = "lorikeet_platform"
SCOPE: Final = "lorikeet_scope"  # in the info of sessions and connections: a tenant's id, or `ALL_TENANTS`
ALL_TENANTS: Final = "*"
_BIND = text("SELECT set_config('role', :role, true), set_config('app.tenant_id', :tenant, true)")


class ForeignRow(Exception):
    """A session bound to one tenant was to write another's row."""


class Transactions:
    """Transactions of one tenant, or of the platform; nothing is opened before they begin."""

    def __init__(self, writing: Engine, reading: Engine, scope: str) -> None:
        self._writing, self._reading, self._scope = writing, reading, scope

    @contextmanager
    def unit_of_work(self) -> Iterator[Session]:
        """A write transaction: committed when the block ends, rolled back when it raises."""
        info = {SCOPE: self._scope}
        with _BoundSession(self._writing, expire_on_commit=False, info=info) as session, session.begin():
            yield session

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A read transaction; nothing of it is kept."""
        info = {SCOPE: self._scope}
        with _BoundSession(self._reading, expire_on_commit=False, autoflush=False, info=info) as session:
            yield session


class Database:
    """One database, by its SQLAlchemy address.

    Args:
        platform_url: another login on the same Postgres for what is not bound to one tenant; empty = the same login.
    """

    def __init__(self, url: str, *, platform_url: str = "") -> None:
        self.is_sqlite = make_url(url).get_backend_name() == "sqlite"
        self.url = url
        self.engine: Engine = self._open(url)
        self._platform_engine = self._open(platform_url) if platform_url else self.engine
        self.platform = _transactions(self._platform_engine, ALL_TENANTS)

    def tenant(self, tenant_id: str) -> Transactions:
        return _transactions(self.engine, tenant_id)

    @property
    def engines(self) -> tuple[Engine, ...]:
        """Those that units of work write with."""
        return (self.engine,) if self._platform_engine is self.engine else (self.engine, self._platform_engine)

    def is_reachable(self) -> bool:
        try:
            with self.platform.read() as session:
                session.execute(text("SELECT 1"))
        except SQLAlchemyError:
            return False
        return True

    def close(self) -> None:
        self.engine.dispose()
        self._platform_engine.dispose()

    def _open(self, url: str) -> Engine:
        parsed = make_url(url)
        if self.is_sqlite and parsed.database:
            Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
        # hide_parameters: an error's text reaches the log, its values must not
        engine = create_engine(
            parsed,
            hide_parameters=True,
            pool_timeout=CHECKOUT_TIMEOUT_S,
            pool_size=10,
            max_overflow=30,
            pool_pre_ping=not self.is_sqlite,
        )
        if self.is_sqlite:
            event.listen(engine, "connect", _prepare_sqlite)
            event.listen(engine, "begin", _begin_sqlite)
        return engine


class _BoundSession(Session):
    """A session that knows its tenant; its listeners are below."""


def _transactions(engine: Engine, scope: str) -> Transactions:
    return Transactions(engine, engine.execution_options(lorikeet_reads_only=True), scope)


@event.listens_for(_BoundSession, "after_begin")
def _bind(session: Session, _transaction: object, connection: Connection) -> None:
    scope = session.info[SCOPE]
    connection.info[SCOPE] = scope
    if connection.dialect.name == "postgresql":
        is_tenant = scope != ALL_TENANTS
        role = TENANT_ROLE if is_tenant else PLATFORM_ROLE
        connection.execute(_BIND, {"role": role, "tenant": scope if is_tenant else ""})


@event.listens_for(_BoundSession, "do_orm_execute")
def _add_tenant(state: ORMExecuteState) -> None:
    """SQLite has no row-level security: there every query of the ORM gets its tenant here."""
    scope = state.session.info[SCOPE]
    if scope == ALL_TENANTS or state.session.get_bind().dialect.name != "sqlite":
        return
    if state.is_select or state.is_update or state.is_delete:
        mine = with_loader_criteria(TenantOwned, lambda table: table.tenant_id == scope, include_aliases=True)
        state.statement = state.statement.options(mine)


@event.listens_for(_BoundSession, "before_flush")
def _refuse_foreign_rows(session: Session, _flush: UOWTransaction, _instances: object) -> None:
    scope = session.info[SCOPE]
    if scope == ALL_TENANTS:
        return
    for row in (*session.new, *session.dirty, *session.deleted):
        if isinstance(row, TenantOwned) and row.tenant_id != scope:
            raise ForeignRow(type(row).__name__)


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
