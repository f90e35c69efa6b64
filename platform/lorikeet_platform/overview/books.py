"""The last time that the ledger's books were compared, as the worker's chore left it."""

from __future__ import annotations

from sqlalchemy.orm import Session

from lorikeet_platform.clock import unix_seconds
from lorikeet_platform.db.tables import Chore
from lorikeet_platform.overview.schemas import BooksChecked
from lorikeet_platform.usage.work import check


def books_checked(session: Session) -> BooksChecked | None:
    """None before the first comparison."""
    row = session.get(Chore, check.NAME)
    if row is None or row.finished_at is None:
        return None
    mismatches = row.result["mismatches"] if row.error is None and row.result is not None else None
    return BooksChecked(checked_at=unix_seconds(row.finished_at), mismatches=mismatches)
