"""Fixtures of the platform's tests: a migrated database, a context around it, two tenants, two clients."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from lorikeet_platform.app import create_admin_app, create_tenant_app
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.migrate import upgrade
from lorikeet_platform.db.session import Database
from tests.support.databases import database, migrated_postgres, postgres, postgres_server
from tests.support.platform_parts import FakeClock, Tenant, Uploader, a_tenant, make_context
from tests.support.signatures import signatures_read_once
from tests.support.statement_watch import watched_statements

__all__ = ["database", "migrated_postgres", "postgres", "postgres_server"]


@pytest.fixture(autouse=True)
def whose_rows() -> Iterator[None]:
    """Every statement of every test says whose rows it is for."""
    with watched_statements() as refused:
        yield
    assert refused == []


@pytest.fixture(scope="session", autouse=True)
def quick_applications() -> Iterator[None]:
    with signatures_read_once():
        yield


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database file as the migrations leave it; tests copy it."""
    path = tmp_path_factory.mktemp("migrated") / "lorikeet.db"
    upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture
def db(migrated_file: Path, tmp_path: Path) -> Iterator[Database]:
    path = tmp_path / "lorikeet.db"
    shutil.copyfile(migrated_file, path)
    database = Database(f"sqlite:///{path}")
    yield database
    database.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def context(tmp_path: Path, db: Database, clock: FakeClock) -> PlatformContext:
    return make_context(tmp_path, db, clock)


@pytest.fixture
def harbour(context: PlatformContext) -> Tenant:
    return a_tenant(context, "harbour")


@pytest.fixture
def orchard(context: PlatformContext) -> Tenant:
    return a_tenant(context, "orchard")


@pytest.fixture
def api(context: PlatformContext) -> Iterator[TestClient]:
    with TestClient(create_tenant_app(context), raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def admin(context: PlatformContext) -> Iterator[TestClient]:
    """The administration port, not signed in."""
    app = create_admin_app(context)
    with TestClient(app, raise_server_exceptions=False, base_url="http://127.0.0.1:8001") as client:
        yield client


@pytest.fixture
def as_admin(context: PlatformContext) -> dict[str, str]:
    """Headers of the administrator's CLI."""
    return {"authorization": f"Bearer {context.admin_token}"}


@pytest.fixture
def uploader(api: TestClient, harbour: Tenant) -> Uploader:
    return Uploader(api, harbour)
