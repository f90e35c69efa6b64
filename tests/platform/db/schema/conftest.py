"""A database of each kind to migrate, and what of its rows a way up and down leaves as it was."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text

from lorikeet_platform.db.session import Database
from tests.support.databases import BOTH, an_empty_postgres, an_owner
from tests.support.old_rows import HOUR, dump

DAY = 24 * HOUR


@dataclass
class Place:
    """A database to migrate, by a login that may be bound by row-level security, and a way to see all of its rows."""

    url: str
    engine: Engine

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self.engine.begin() as work:
            return [tuple(row) for row in work.execute(text(query))]

    def run(self, *statements: str) -> None:
        with self.engine.begin() as work:
            for statement in statements:
                work.execute(text(statement))

    def dump(self) -> dict[str, list[dict[str, Any]]]:
        with self.engine.begin() as work:
            return dump(work)


@pytest.fixture(params=[*BOTH, pytest.param("postgres, by a plain owner", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    if request.param == "sqlite":
        url = f"sqlite:///{request.getfixturevalue('tmp_path') / 'migrated.db'}"
        database = Database(url)
        yield Place(url, database.engine)
        database.close()
        return
    with an_empty_postgres(request.getfixturevalue("postgres_server")) as url:
        # A prepared query would remember the columns of before a step.
        engine = create_engine(url, connect_args={"prepare_threshold": None})
        if request.param == "postgres":
            yield Place(url, engine)
        else:
            with an_owner(url) as owners_url:
                yield Place(owners_url, engine)
        engine.dispose()


def as_before(found: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Without when keys were revoked: of those where nobody had said so, a migration does."""
    found["api_keys"] = [{**row, "revoked_at": None} for row in found["api_keys"]]
    for table in ("plans", "plan_limits"):
        found.pop(table, None)  # made anew by their step, with its time
    return found
