"""The tables without migrations, for tests that make many databases, and the plan that every tenant is on."""

from __future__ import annotations

from sqlalchemy.orm import Session

from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import Plan, PlanLimit, Table
from lorikeet_platform.limits.standard import STANDARD, STANDARD_PLAN


def make_tables(db: Database) -> None:
    Table.metadata.create_all(db.engine)
    with db.platform.unit_of_work() as work:
        add_standard_plan(work)


def add_standard_plan(work: Session) -> None:
    work.add(Plan(id=STANDARD_PLAN, display_name="Standard", created_at=0))
    work.flush()
    for dimension, (value, burst) in STANDARD.items():
        work.add(
            PlanLimit(
                plan_id=STANDARD_PLAN,
                dimension=dimension,
                value=value,
                burst=burst,
                updated_by="system",
                updated_at=0,
            )
        )
