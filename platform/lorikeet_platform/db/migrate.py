"""Brings a database to the newest schema, from the migrations shipped in `lorikeet_migrations`.

All steps run in one transaction, by the login that owns the tables. On Postgres forced row-level security would hide
every row from that login, too: it is lifted inside the transaction, and back when the transaction ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, event, text

from lorikeet_platform.db.session import Database

LOCK = 0x6C6F72696B656574  # "lorikeet": one migration at a time among starting gateways
_PROTECTED = text(
    "SELECT oid::regclass::text FROM pg_class WHERE relrowsecurity AND relnamespace = current_schema()::regnamespace"
    " AND (relforcerowsecurity OR NOT :is_forced) AND relkind IN ('r', 'p')"
)


class BrokenReferences(Exception):
    """After the steps, rows refer to rows that are not there; nothing was kept."""


def upgrade(url: str, revision: str = "head") -> None:
    _migrate(url, revision, is_upgrade=True)


def downgrade(url: str, revision: str) -> None:
    _migrate(url, revision, is_upgrade=False)


def _migrate(url: str, revision: str, *, is_upgrade: bool) -> None:
    database = Database(url)
    try:
        if database.is_sqlite:
            # A step that changes a constraint makes its table anew, and others refer to it meanwhile.
            event.listen(database.engine, "connect", _leave_references_unchecked)
        # One transaction for all steps; on SQLite it is BEGIN IMMEDIATE, which excludes other writers.
        with database.engine.begin() as connection:
            if not database.is_sqlite:
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
            config = Config()
            config.set_main_option("script_location", "lorikeet_migrations:")
            config.attributes["connection"] = connection
            if _is_at(connection, config, revision):
                return
            with every_row_in_sight(connection):
                (command.upgrade if is_upgrade else command.downgrade)(config, revision)
            if database.is_sqlite and (broken := connection.execute(text("PRAGMA foreign_key_check")).all()):
                raise BrokenReferences(f"{len(broken)} rows refer to what is not there, the first in {broken[0][0]}")
    finally:
        database.close()


def _is_at(connection: Connection, config: Config, revision: str) -> bool:
    """A gateway that starts beside others finds nothing to do, and takes no locks that would hold them up."""
    wanted = ScriptDirectory.from_config(config).get_revision(revision)
    return wanted is not None and MigrationContext.configure(connection).get_current_revision() == wanted.revision


@contextmanager
def every_row_in_sight(connection: Connection) -> Iterator[None]:
    """Steps that move data see all of it."""
    if connection.dialect.name == "sqlite":
        yield
        return
    forced = connection.scalars(_PROTECTED, {"is_forced": True}).all()
    for table in forced:
        connection.execute(text(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY"))
    yield
    # Of those that a downgrade took the policies from, or that it dropped, nothing is left to force.
    still_protected = set(connection.scalars(_PROTECTED, {"is_forced": False}))
    for table in forced:
        if table in still_protected:
            connection.execute(text(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY"))


def _leave_references_unchecked(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA foreign_keys=OFF")
