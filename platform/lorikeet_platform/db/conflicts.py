"""A unique constraint's violation as the refusal it stands for: the database decides who was first."""

from __future__ import annotations

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session


def add_or_raise(work: Session, row: object, refusal: Exception) -> None:
    """Insert `row` now; `refusal` is raised when it collides with one that exists."""
    work.add(row)
    try:
        work.flush()
    except IntegrityError:
        raise refusal from None
