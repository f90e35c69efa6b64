"""Transactions, the same for SQLite and Postgres, each bound to one tenant or named the platform's.

    db.tenant(tenant_id)    sees and writes rows of that tenant only
    db.platform             sees all tenants: sign-in, administration, the worker's rounds

On Postgres row-level security holds that (`db.connections` begins the transaction with its role and tenant). On SQLite
the session adds the tenant to each query of the ORM, and refuses writes that name another tenant, or do not say whose
rows they make. It does not see what a text() or a statement of Core, on tables instead of classes, reads, changes or
deletes: on SQLite those name the tenant themselves, which the tests' watch over statements checks.

`unit_of_work` is one write transaction, committed at its end; `read` is one read transaction. Services get the session
and never commit. On SQLite a write begins with BEGIN IMMEDIATE, so that two writers queue at the start instead of
failing when a reader becomes a writer; on Postgres a read transaction cannot write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, Insert, Update, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import ORMExecuteState, Session, UOWTransaction, with_loader_criteria

from lorikeet_platform.db.connections import ALL_TENANTS, READS_ONLY, SCOPE, open_engine
from lorikeet_platform.db.ownership import ForeignRow, check_insert, check_update
from lorikeet_platform.db.tables.metadata import TenantOwned
from lorikeet_platform.db.tables.tenant import Tenant


class Transactions:
    """Transactions of one tenant, or of the platform; nothing is opened before they begin."""

    def __init__(self, engine: Engine, scope: str) -> None:
        self._engine, self._scope = engine, scope

    @contextmanager
    def unit_of_work(self) -> Iterator[Session]:
        """A write transaction: committed when the block ends, rolled back when it raises."""
        with self._session(reads_only=False) as session, session.begin():
            yield session

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A read transaction; nothing of it is kept."""
        with self._session(reads_only=True) as session:
            yield session
            if self._engine.dialect.name == "postgresql":
                # It wrote nothing, and after a rollback the driver prepares all its statements anew.
                session.expunge_all()
                session.commit()

    @contextmanager
    def _session(self, *, reads_only: bool) -> Iterator[Session]:
        with self._engine.connect() as connection:
            bound = connection.execution_options(**{SCOPE: self._scope, READS_ONLY: reads_only})
            info = {SCOPE: self._scope}
            with _BoundSession(bound, expire_on_commit=False, autoflush=not reads_only, info=info) as session:
                yield session


class Database:
    """One database, by its SQLAlchemy address.

    Args:
        platform_url: another login on the same Postgres for what is not bound to one tenant; empty = the same login.
    """

    def __init__(self, url: str, *, platform_url: str = "") -> None:
        self.is_sqlite = make_url(url).get_backend_name() == "sqlite"
        self.url = url
        self.engine: Engine = open_engine(url)
        self._platform_engine = open_engine(platform_url) if platform_url else self.engine
        self.platform = Transactions(self._platform_engine, ALL_TENANTS)

    def tenant(self, tenant_id: str) -> Transactions:
        return Transactions(self.engine, tenant_id)

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
        for engine in self.engines:
            engine.dispose()


class _BoundSession(Session):
    """A session that knows its tenant; its listeners are below. Bulk calls would pass them by: only the platform's."""

    def bulk_save_objects(self, *args: Any, **kwargs: Any) -> None:
        self._refuse_bulk()
        super().bulk_save_objects(*args, **kwargs)

    def bulk_insert_mappings(self, *args: Any, **kwargs: Any) -> None:
        self._refuse_bulk()
        super().bulk_insert_mappings(*args, **kwargs)

    def bulk_update_mappings(self, *args: Any, **kwargs: Any) -> None:
        self._refuse_bulk()
        super().bulk_update_mappings(*args, **kwargs)

    def _refuse_bulk(self) -> None:
        if self.info[SCOPE] != ALL_TENANTS:
            raise ForeignRow("a bulk call")


@event.listens_for(_BoundSession, "do_orm_execute")
def _add_tenant(state: ORMExecuteState) -> None:
    """SQLite has no row-level security: there every query of the ORM gets its tenant here."""
    scope = state.session.info[SCOPE]
    if scope == ALL_TENANTS or state.session.get_bind().dialect.name != "sqlite":
        return
    given = state.parameters or ()
    rows = [given] if isinstance(given, Mapping) else given
    if isinstance(state.statement, Insert):
        check_insert(state.statement, rows, scope)
    elif isinstance(state.statement, Update):
        check_update(state.statement, rows, scope)
    if state.is_select or state.is_update or state.is_delete:
        state.statement = state.statement.options(
            with_loader_criteria(TenantOwned, lambda table: table.tenant_id == scope, include_aliases=True),
            with_loader_criteria(Tenant, lambda table: table.id == scope, include_aliases=True),
        )


@event.listens_for(_BoundSession, "before_flush")
def _refuse_foreign_rows(session: Session, _flush: UOWTransaction, _instances: object) -> None:
    scope = session.info[SCOPE]
    if scope == ALL_TENANTS:
        return
    for row in (*session.new, *session.dirty, *session.deleted):
        owner = row.tenant_id if isinstance(row, TenantOwned) else row.id if isinstance(row, Tenant) else scope
        if owner != scope:
            raise ForeignRow(type(row).__name__)
