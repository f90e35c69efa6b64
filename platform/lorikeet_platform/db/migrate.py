"""Brings a database to the newest schema, from the migrations shipped in `lorikeet_migrations`."""

from __future__ import annotations

from alembic import command
from alembic.config import Config
from sqlalchemy import text

from lorikeet_platform.db.session import Database

LOCK = 0x6C6F72696B656574  # "lorikeet": one migration at a time among starting gateways


def upgrade(url: str, revision: str = "head") -> None:
    _migrate(url, revision, is_upgrade=True)


def downgrade(url: str, revision: str) -> None:
    _migrate(url, revision, is_upgrade=False)


def _migrate(url: str, revision: str, *, is_upgrade: bool) -> None:
    database = Database(url)
    try:
        # One transaction for all steps; on SQLite it is BEGIN IMMEDIATE, which excludes other writers.
        with database.engine.begin() as connection:
            if not database.is_sqlite:
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
            config = Config()
            config.set_main_option("script_location", "lorikeet_migrations:")
            config.attributes["connection"] = connection
            (command.upgrade if is_upgrade else command.downgrade)(config, revision)
    finally:
        database.close()
