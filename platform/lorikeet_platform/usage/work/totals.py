"""Figures of chores that are added up over all of their rounds, in the chore's row: processes come and go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select

from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import Chore

TOTAL = "total_"


def with_totals(db: Database, chore: str, figures: Mapping[str, int]) -> dict[str, Any]:
    """A round's figures, and each of them added to what the rounds before had."""
    with db.platform.read() as work:
        before = work.scalar(select(Chore.result).where(Chore.name == chore)) or {}
    totals = {f"{TOTAL}{name}": int(before.get(f"{TOTAL}{name}", 0)) + n for name, n in figures.items()}
    return dict(figures) | totals
