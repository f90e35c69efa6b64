"""Rows as each earlier schema could hold them: two tenants, one of them suspended, with all that a tenant may have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, inspect, text

SALT: Final = bytes(32)
NOVEMBER, DECEMBER = 1_793_491_200_000_000, 1_796_083_200_000_000  # 2026-11-01, 2026-12-01 UTC
HOUR: Final = 3_600_000_000
Rows = Mapping[str, Sequence[Mapping[str, Any]]]


def _tenant(number: int, slug: str, status: str) -> dict[str, Any]:
    return {
        "id": f"ten_{number}",
        "slug": slug,
        "display_name": slug.title(),
        "status": status,
        "cache_salt": SALT,
        "created_at": number,
    }


def _key(number: int, tenant: int, name: str, status: str, revoked_at: int | None = None) -> dict[str, Any]:
    return {
        "tenant_id": f"ten_{tenant}",
        "id": f"key_{number}",
        "public_id": f"public{number}",
        "secret_mac": SALT,
        "pepper_version": 1,
        "name": name,
        "hint": "abcd",
        "status": status,
        "created_at": 10 + number,
        "revoked_at": revoked_at,
    }


def _usage(number: int, key: int, admitted_at: int, tokens: tuple[int, int], outcome: str | None) -> dict[str, Any]:
    return {
        "tenant_id": "ten_1" if key < 3 else "ten_2",
        "request_id": f"req_{number}",
        "key_id": f"key_{key}",
        "route": "/v1/completions",
        "base_model": "tiny",
        "adapter_id": "adp_1" if key < 3 else None,
        "version_id": "ver_1" if key < 3 else None,
        "stream": False,
        "state": "settled" if outcome else "open",
        "outcome": outcome,
        "prompt_tokens": tokens[0],
        "completion_tokens": tokens[1],
        "admitted_at": admitted_at,
        "settled_at": admitted_at + 1 if outcome else None,
    }


FIRST: Final[Rows] = {
    "tenants": [_tenant(1, "harbour", "active"), _tenant(2, "orchard", "suspended")],
    "api_keys": [
        _key(1, 1, "first", "active"),
        _key(2, 1, "second", "revoked"),
        _key(3, 2, "first", "revoked", revoked_at=77),
    ],
    "adapters": [
        {
            "tenant_id": "ten_1",
            "id": "adp_1",
            "name": "pirate",
            "base_model": "tiny",
            "next_version": 3,
            "created_at": 1,
        }
    ],
    "adapter_versions": [
        {
            "tenant_id": "ten_1",
            "id": f"ver_{number}",
            "adapter_id": "adp_1",
            "number": number,
            "state": state,
            "state_rev": 1,
            "live_when_ready": state == "validating",
            "digest": "d" if state == "ready" else None,
            "bytes": 10,
            "target_modules": "[]",
            "warnings": "[]",
            "created_by": "key_1",
            "created_at": number,
            "ready_at": 5 if state == "ready" else None,
        }
        for number, state in ((1, "ready"), (2, "validating"))
    ],
    "uploads": [
        {
            "tenant_id": "ten_1",
            "id": "upl_1",
            "adapter_name": "pirate",
            "filename": "adapter_config.json",
            "sha256": "a",
            "length": 7,
            "received": 7,
            "state": "sealed",
            "created_by": "key_1",
            "created_at": 1,
            "expires_at": 9,
        }
    ],
    "upload_slices": [
        {
            "tenant_id": "ten_1",
            "upload_id": "upl_1",
            "begin": 0,
            "bytes": 7,
            "sha256": "a",
            "slice_id": "sli_1",
            "stored_at": 1,
        }
    ],
    "version_files": [
        {
            "tenant_id": "ten_1",
            "version_id": "ver_2",
            "filename": "adapter_config.json",
            "sha256": "a",
            "bytes": 7,
            "upload_id": "upl_1",
        }
    ],
    "aliases": [
        {
            "tenant_id": "ten_1",
            "adapter_id": "adp_1",
            "alias": "live",
            "version_id": "ver_1",
            "revision": 4,
            "updated_at": 5,
        }
    ],
    "jobs": [
        {
            "tenant_id": "ten_1",
            "id": "job_1",
            "kind": "validate",
            "version_id": "ver_2",
            "state": "queued",
            "attempt": 0,
            "max_attempts": 5,
            "run_after": 1,
            "wake_at": 1,
            "created_at": 1,
        }
    ],
    "usage_records": [
        _usage(1, 1, NOVEMBER + 5, (30, 20), "ok"),
        _usage(2, 1, DECEMBER - 1, (3, 2), "client_cancelled"),
        _usage(3, 1, DECEMBER, (100, 11), "ok"),
        _usage(4, 2, DECEMBER + HOUR, (7, 0), "server_error"),
        _usage(5, 3, DECEMBER + HOUR, (1, 1), "ok"),
        _usage(6, 1, DECEMBER + 2 * HOUR, (0, 0), None),
        # Of a gateway that died, in a month in which its key and its tenant used nothing else.
        _usage(7, 3, NOVEMBER + 6, (0, 0), None),
    ],
}


def _with(rows: Rows, table: str, **columns: Any) -> Rows:
    return {**rows, table: [{**row, **columns} for row in rows[table]]}


def _without(rows: Rows, table: str, column: str) -> Rows:
    return {**rows, table: [{name: row[name] for name in row if name != column} for row in rows[table]]}


SECOND: Final = _with(_with(FIRST, "tenants", weight=2.5), "usage_records", cached_tokens=0)
THIRD: Final[Rows] = {
    **_without(_without(SECOND, "aliases", "version_id"), "adapter_versions", "live_when_ready"),
    "alias_targets": [
        {"tenant_id": "ten_1", "adapter_id": "adp_1", "alias": "live", "version_id": "ver_1", "weight": 100}
    ],
    "alias_history": [
        {
            "tenant_id": "ten_1",
            "adapter_id": "adp_1",
            "alias": "live",
            "revision": 4,
            "targets": '[{"version_id": "ver_1", "number": 1, "weight": 100}]',
            "sticky": "none",
            "actor": "key_1",
            "at": 5,
        }
    ],
}
ROWS: Final[Mapping[str, Rows]] = {"0001": FIRST, "0002": SECOND, "0003": THIRD}


def insert_rows(work: Connection, rows: Rows) -> None:
    for table, lines in rows.items():
        for line in lines:
            columns = ", ".join(line)
            values = ", ".join(f":{name}" for name in line)
            # The values of JSON columns are their text.
            work.execute(text(f"INSERT INTO {table} ({columns}) VALUES ({values})"), dict(line))


def dump(work: Connection, *, only: frozenset[str] | None = None) -> dict[str, list[dict[str, Any]]]:
    """All rows of all tables, or of some, whatever the schema."""
    found = {}
    for table in sorted(inspect(work).get_table_names()):
        if table != "alembic_version" and (only is None or table in only):
            lines = [dict(line) for line in work.execute(text(f"SELECT * FROM {table}")).mappings()]
            found[table] = sorted(lines, key=str)
    return found
