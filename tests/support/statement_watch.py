"""Watches every SQL statement of a test: none may touch tenants' rows without saying whose they are.

On a connection that names no scope, and on one that is bound to a tenant, a statement on a tenants' table is refused

    where no scope is named        always, but for migrations and for what a test itself sends
    SQLite, bound to a tenant      unless the tenant's id is among its parameters
    Postgres, bound to a tenant    unless `app.tenant_id` is that tenant in the transaction
    Postgres, the platform         unless the transaction has the platform's role
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, event

from lorikeet_platform.db.connections import ALL_TENANTS, PLATFORM_ROLE, SCOPE
from lorikeet_platform.db.tables import tenant_tables

ROOT: Final = Path(__file__).parents[2]
# Who may send statements of its own making, with the rights of its login.
FREE: Final = (ROOT / "tests", ROOT / "migrations", ROOT / "platform/lorikeet_platform/db/migrate.py")
_WATCHED: Final = re.compile(r"\b(" + "|".join(sorted(tenant_tables(), key=len, reverse=True)) + r")\b")


class UnboundStatement(AssertionError):
    """A statement on tenants' rows does not say whose."""


@contextmanager
def watched_statements() -> Iterator[list[str]]:
    """Yields what was refused; refusing also raises, but an application may turn that into an answer."""
    refused: list[str] = []

    def check(
        connection: Connection, _cursor: object, statement: str, parameters: Any, _context: object, _many: object
    ) -> None:
        if tables_in(statement) and (fault := _fault(connection, parameters)):
            refused.append(f"{fault}: {statement}")
            raise UnboundStatement(refused[-1])

    event.listen(Engine, "before_cursor_execute", check)
    try:
        yield refused
    finally:
        event.remove(Engine, "before_cursor_execute", check)


@lru_cache(maxsize=4096)
def tables_in(statement: str) -> frozenset[str]:
    """The tables of tenants that a statement names; none for those that change the schema or begin a transaction."""
    if statement.lstrip().upper().startswith(("PRAGMA", "BEGIN", "CREATE", "ALTER", "DROP", "GRANT", "TRUNCATE")):
        return frozenset()
    return frozenset(_WATCHED.findall(statement))


def _fault(connection: Connection, parameters: Any) -> str | None:
    scope = connection.get_execution_options().get(SCOPE)
    if scope is None:
        return None if _is_sent_by_a_test() else "no scope"
    if connection.dialect.name == "postgresql":
        return _fault_on_postgres(connection, scope)
    if scope == ALL_TENANTS:
        return None
    sets = parameters if isinstance(parameters, list) else [parameters]
    is_named = all(scope in (each.values() if isinstance(each, dict) else each) for each in sets)
    return None if is_named else "the tenant is not among the parameters"


def _fault_on_postgres(connection: Connection, scope: str) -> str | None:
    driver: Any = connection.connection.driver_connection
    role, tenant = driver.execute("SELECT current_user, current_setting('app.tenant_id', true)").fetchone()
    if scope == ALL_TENANTS:
        return None if role == PLATFORM_ROLE else f"the role is {role}"
    return None if tenant == scope else f"the tenant is {tenant!r}"


def _is_sent_by_a_test() -> bool:
    """Whether the nearest code of ours on the stack is a test's, or a migration."""
    frame = sys._getframe(2)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(ROOT) and ".venv" not in path.parts and path != Path(__file__):
            return any(path.is_relative_to(free) for free in FREE)
        frame = frame.f_back  # type: ignore[assignment]
    return False
