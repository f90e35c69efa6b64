"""Two tenants with a row in every table each, and on Postgres the two logins of an installation that has two."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.engine import make_url

from lorikeet_platform.db.connections import PLATFORM_ROLE, TENANT_ROLE
from lorikeet_platform.db.session import Database
from tests.support.tenant_rows import fill_every_table


@dataclass(frozen=True)
class Pair:
    """Ids of the two tenants."""

    a: str
    b: str


@pytest.fixture
def pair(database: Database) -> Pair:
    with database.platform.unit_of_work() as work:
        return Pair(fill_every_table(work, "aaa"), fill_every_table(work, "bbb"))


@dataclass(frozen=True)
class Logins:
    """Addresses of one database for its three kinds of login, and engines for raw SQL."""

    app_url: str
    platform_url: str
    app: Engine
    platform: Engine
    superuser: Engine


@pytest.fixture
def logins(postgres: Database) -> Iterator[Logins]:
    parsed, names = make_url(postgres.url), {}
    with postgres.engine.begin() as work:
        for role in (TENANT_ROLE, PLATFORM_ROLE):
            names[role] = f"login_{uuid.uuid4().hex}"
            work.execute(text(f"CREATE ROLE {names[role]} LOGIN PASSWORD 'for tests' IN ROLE {role}"))
    urls = {
        role: parsed.set(username=name, password="for tests").render_as_string(hide_password=False)
        for role, name in names.items()
    }
    engines = {role: create_engine(url) for role, url in urls.items()}
    yield Logins(urls[TENANT_ROLE], urls[PLATFORM_ROLE], engines[TENANT_ROLE], engines[PLATFORM_ROLE], postgres.engine)
    for engine in engines.values():
        engine.dispose()
    with postgres.engine.begin() as work:
        for name in names.values():
            work.execute(text(f"DROP ROLE {name}"))


@pytest.fixture
def separate(logins: Logins) -> Iterator[Database]:
    """The database as the gateway of such an installation opens it."""
    database = Database(logins.app_url, platform_url=logins.platform_url)
    yield database
    database.close()


@pytest.fixture
def two(postgres: Database) -> Pair:
    """The same two tenants where a test is for Postgres alone."""
    with postgres.platform.unit_of_work() as work:
        return Pair(fill_every_table(work, "aaa"), fill_every_table(work, "bbb"))
