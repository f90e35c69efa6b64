"""A unique constraint's violation as the refusal it stands for: the database decides who was first."""

from __future__ import annotations

import sqlite3
from typing import Final

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

UNIQUE_VIOLATION: Final = "23505"
_UNIQUE_ON_SQLITE: Final = frozenset({"SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY"})


def add_or_raise(work: Session, row: object, refusal: Exception) -> None:
    """Insert `row` now; `refusal` is raised when it collides with one that exists."""
    work.add(row)
    try:
        work.flush()
    except IntegrityError as error:
        if not is_collision(error):
            raise
        raise refusal from None


def is_collision(error: IntegrityError) -> bool:
    """Whether a row exists already, and not: whether a row makes no sense or refers to what is not there."""
    if isinstance(error.orig, sqlite3.IntegrityError):
        return error.orig.sqlite_errorname in _UNIQUE_ON_SQLITE
    return getattr(error.orig, "sqlstate", None) == UNIQUE_VIOLATION
