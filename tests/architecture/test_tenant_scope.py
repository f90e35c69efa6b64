"""Who may open transactions over all tenants is a closed list, and so is who opens connections of another kind."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2] / "platform/lorikeet_platform"

# Module: what it does for more than one tenant, or before it knows which.
OVER_ALL_TENANTS: Final[Mapping[str, str]] = {
    "accounts/access.py": "sessions of the dashboard",
    "accounts/routes.py": "sign-in and sign-out",
    "api_keys/routes.py": "a leaked key, whosever it is",
    "audit/routes.py": "an administrator's view of all events",
    "auth/notices.py": "keys and tenants that were ended while nobody listened",
    "auth/verifying/last_use.py": "when keys were used, of many tenants at once",
    "auth/verifying/stored.py": "finds whose a key is",
    "cli/embedded/welcome.py": "the owner's link at the first start",
    "db/session.py": "offers them; asks whether the database answers",
    "doctor/rounds.py": "an administrator's view of the engine",
    "fleet.py": "gateways",
    "jobs/rounds.py": "chores",
    "jobs/routes.py": "an administrator's view of jobs and chores",
    "jobs/runner.py": "finds whose a job is",
    "jobs/sweeper.py": "jobs that nobody was woken for",
    "limits/routes.py": "plans",
    "overview/service.py": "an administrator's view of the installation",
    "registry/acting.py": "finds the tenant that an administrator names",
    "registry/uploads/leftovers.py": "which stored bytes are still needed",
    "registry/work/guard.py": "lists what is to be judged",
    "registry/work/purging.py": "lists what is to be purged",
    "registry/work/reconciliation.py": "compares rows and store",
    "telemetry/stock.py": "metrics of jobs and uploads",
    "tenants/routes.py": "tenants",
    "usage/ledger/costs.py": "what requests have cost, of many tenants at once",
    "usage/routes.py": "an administrator's view of usage",
    "usage/work/check.py": "compares the books",
    "usage/work/figures.py": "metrics of the books",
    "usage/work/owners.py": "says which records have a gateway that lives",
    "usage/work/reaper.py": "lists records that nobody settles",
    "usage/work/rollups.py": "lists what is to be added up",
    "usage/work/totals.py": "compares the books",
    "worker.py": "uploads whose time is over; owner links",
}
# Module: why it opens a connection beside those of transactions.
OWN_CONNECTIONS: Final[Mapping[str, str]] = {
    "auth/notices.py": "listens, and reads no table",
    "db/connections.py": "makes the engines",
    "db/migrate.py": "migrates, as the tables' owner",
    "db/session.py": "names the scope",
}


def test_transactions_over_all_tenants_are_opened_by_these_modules_alone() -> None:
    found = {name for name, tree in modules() if any(is_platform(node) for node in ast.walk(tree))}
    assert found == set(OVER_ALL_TENANTS)


def test_connections_without_a_scope_are_opened_by_these_modules_alone() -> None:
    found = {name for name, tree in modules() if any(opens_connection(node) for node in ast.walk(tree))}
    assert found == set(OWN_CONNECTIONS)


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(ROOT.rglob("*.py")):
        yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def is_platform(node: ast.AST) -> bool:
    """`….platform` in any use: called at once, or kept for later."""
    return isinstance(node, ast.Attribute) and node.attr == "platform" and not is_name(node.value, "sys")


def opens_connection(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
        return name in ("create_engine", "raw_connection") or (name in ("begin", "connect") and is_engine(called))
    return False


def is_engine(called: ast.expr) -> bool:
    owner = called.value if isinstance(called, ast.Attribute) else None
    return (isinstance(owner, ast.Attribute) and "engine" in owner.attr) or is_name(owner, "engine")


def is_name(node: ast.AST | None, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
