"""Whose rows a statement writes, as far as the statement itself says: for SQLite, which has no row-level security."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import BindParameter, Insert, Update
from sqlalchemy.sql.elements import ClauseElement, ColumnClause, Label

from lorikeet_platform.db.tables.metadata import tenant_tables
from lorikeet_platform.db.tables.tenant import Tenant

_ITSELF: Final = object()  # the column keeps its value
_UNKNOWN: Final = object()  # only the database could tell
Rows = Sequence[Mapping[str, Any]]


class ForeignRow(Exception):
    """A session bound to one tenant was to write another's row."""


def check_insert(statement: Insert, rows: Rows, tenant_id: str) -> None:
    """Every row names the tenant, however rows are given, and no tenant is made. Raises ForeignRow."""
    table = _name_of(statement.table)
    if table == Tenant.__tablename__:
        raise ForeignRow(f"an INSERT into {table}")
    if table not in tenant_tables():
        return
    is_every_row_named = set(_inserted(statement, rows)) == {tenant_id}
    on_conflict: Mapping[Any, object] = getattr(statement._post_values_clause, "update_values_to_set", {})
    changed = _assigned(statement, "tenant_id", _pairs(on_conflict.items()))
    if not is_every_row_named or not {*_resolved(changed, rows)} <= {tenant_id, _ITSELF}:
        raise ForeignRow(f"an INSERT into {table}")


def check_update(statement: Update, rows: Rows, tenant_id: str) -> None:
    """No row is given away, and rows that are named by their keys are the tenant's. Raises ForeignRow."""
    table = _name_of(statement.table)
    if table not in tenant_tables() and table != Tenant.__tablename__:
        return
    column = "id" if table == Tenant.__tablename__ else "tenant_id"
    values = _assigned(statement, column, _pairs((statement._values or {}).items()))
    owners = {*_resolved(values, rows), *(row[column] for row in rows if column in row)}
    if not owners <= {tenant_id, _ITSELF}:
        raise ForeignRow(f"an UPDATE of {table}")


def _inserted(statement: Insert, rows: Rows) -> Iterator[object]:
    values = _pairs((statement._values or {}).items())
    yield from _resolved(_assigned(statement, "tenant_id", values), rows)
    yield from (row["tenant_id"] for row in rows if "tenant_id" in row)
    for row in (row for several in statement._multi_values for row in several):
        named = isinstance(row, Mapping) and _assigned(statement, "tenant_id", _pairs(row.items()))
        yield from _resolved(named or [_UNKNOWN], rows)
    if statement.select is not None:
        chosen = zip(statement._select_names or (), statement.select.selected_columns, strict=False)
        yield from _resolved(_assigned(statement, "tenant_id", _pairs(chosen)) or [_UNKNOWN], rows)


def _pairs(assignments: Iterable[tuple[Any, object]]) -> Iterator[tuple[str, object]]:
    for column, value in assignments:
        yield (column if isinstance(column, str) else str(column.key)), value


def _assigned(statement: Insert | Update, column: str, pairs: Iterable[tuple[str, object]]) -> list[object]:
    """What `column` is set to: a value, a parameter, the column itself, or something unknown."""
    return [_understood(statement, column, value) for name, value in pairs if name == column]


def _understood(statement: Insert | Update, column: str, value: object) -> object:
    value = value.element if isinstance(value, Label) else value
    if isinstance(value, BindParameter) or not isinstance(value, ClauseElement):
        return value
    is_own = isinstance(value, ColumnClause) and _name_of(value.table) == _name_of(statement.table)
    return _ITSELF if is_own and getattr(value, "name", None) == column else _UNKNOWN


def _resolved(values: Iterable[object], rows: Rows) -> Iterator[object]:
    """A parameter has the values that the statement is executed with, or its own."""
    for value in values:
        if isinstance(value, BindParameter):
            yield from [row[value.key] for row in rows if value.key in row] or [value.effective_value]
        else:
            yield value


def _name_of(table: object) -> str:
    return str(getattr(table, "name", ""))
