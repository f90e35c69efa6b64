"""Processes that are alive, and who does which regular chore: shape and constraints."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, String
from sqlalchemy.orm import Mapped, mapped_column

from lorikeet_platform.db.tables.metadata import Id, Micros, Table


class Gateway(Table):
    """A gateway process; what it admitted is its own to settle while it is seen."""

    __tablename__ = "gateways"

    id: Mapped[Id] = mapped_column(primary_key=True)
    started_at: Mapped[Micros]
    seen_at: Mapped[Micros]


class Chore(Table):
    """Regular work that exactly one process does at a time: when it is due, who has it, how it went last."""

    __tablename__ = "chores"

    name: Mapped[str] = mapped_column(String(40), primary_key=True)
    due_at: Mapped[Micros]
    holder: Mapped[Id | None]
    lease_expires_at: Mapped[Micros | None]
    finished_at: Mapped[Micros | None]
    error: Mapped[str | None] = mapped_column(String(200), doc="class of what went wrong last time; none = nothing")
    result: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True), doc="figures of the last round")
