"""Brings a database to the newest schema, from the migrations shipped in `lorikeet_migrations`."""

from __future__ import annotations

from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import event, text

from lorikeet_platform.db.session import Database

LOCK = 0x6C6F72696B656574  # "lorikeet": one migration at a time among starting gateways


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
            (command.upgrade if is_upgrade else command.downgrade)(config, revision)
            if database.is_sqlite and (broken := connection.execute(text("PRAGMA foreign_key_check")).all()):
                raise BrokenReferences(f"{len(broken)} rows refer to what is not there, the first in {broken[0][0]}")
    finally:
        database.close()


def _leave_references_unchecked(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA foreign_keys=OFF")
