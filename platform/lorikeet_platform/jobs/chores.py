"""Regular work of the whole installation: when it is due, who does it, how it went. One row for each in `chores`.

A chore is taken by a lease, so that two workers never do one at once, and its time is in the row, so that it outlives
whoever did it last. A chore whose worker was too slow, or slept, may be done a second time meanwhile: chores can bear
that, and what the slow one found is not written over what the other has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from lorikeet_platform.clock import MINUTE, SECOND
from lorikeet_platform.db.tables import Chore as ChoreRow
from lorikeet_platform.ids import new_id
from lorikeet_platform.jobs.queue import LeaseLost

LEASE_US: Final = 60 * SECOND
# A chore that failed is tried again before its time, but not so soon that a store that is down is listed all day.
TRY_AGAIN_US: Final = 10 * MINUTE
_NO_SYNC: Final = {"synchronize_session": False}


@dataclass(frozen=True, slots=True)
class Chore:
    """What is to be done again and again, by whichever worker comes first.

    Attributes:
        run: returns figures for the row, or nothing to say.
    """

    name: str
    every_us: int
    run: Callable[[], Mapping[str, Any] | None]


@dataclass(frozen=True, slots=True)
class HeldChore:
    """A chore in the hands of one worker."""

    chore: Chore
    token: str


def add_missing(work: Session, chores: Iterable[Chore], now: int) -> None:
    """A row for every chore that has none, due at once."""
    known = set(work.scalars(select(ChoreRow.name)))
    for chore in chores:
        if chore.name in known:
            continue
        try:
            with work.begin_nested():
                work.add(ChoreRow(name=chore.name, due_at=now))
        except IntegrityError:  # another worker was first
            pass


def due(work: Session, now: int) -> Collection[str]:
    """Names of chores that may be taken now."""
    return set(work.scalars(select(ChoreRow.name).where(*_is_free(now))))


def take(work: Session, chore: Chore, now: int) -> HeldChore | None:
    """The chore, if it is due and nobody holds it."""
    token = new_id("cho")
    free = update(ChoreRow).where(ChoreRow.name == chore.name, *_is_free(now))
    held = free.values(holder=token, lease_expires_at=now + LEASE_US).returning(ChoreRow.name)
    return HeldChore(chore, token) if work.scalar(held, execution_options=_NO_SYNC) is not None else None


def extend(work: Session, held: HeldChore, now: int) -> None:
    """Raises LeaseLost."""
    _write(work, held, lease_expires_at=now + LEASE_US)


def finish(work: Session, held: HeldChore, result: Mapping[str, Any] | None, now: int) -> None:
    """Done; due again after its time. Raises LeaseLost, and then nothing is kept."""
    _write(
        work,
        held,
        holder=None,
        lease_expires_at=None,
        due_at=now + held.chore.every_us,
        finished_at=now,
        error=None,
        result=None if result is None else dict(result),
    )


def fail(work: Session, held: HeldChore, error: str, now: int) -> None:
    """It failed with an error of that class; the figures of the last good round stay. Raises LeaseLost."""
    again = now + min(held.chore.every_us, TRY_AGAIN_US)
    _write(work, held, holder=None, lease_expires_at=None, due_at=again, finished_at=now, error=error[:200])


def put_back(work: Session, held: HeldChore) -> None:
    """Due as before: its worker was stopped meanwhile. Raises LeaseLost."""
    _write(work, held, holder=None, lease_expires_at=None)


def break_leases(work: Session) -> None:
    """After a start, when no other worker can exist: whoever held a chore is dead."""
    held = update(ChoreRow).where(ChoreRow.holder.is_not(None))
    work.execute(held.values(holder=None, lease_expires_at=None), execution_options=_NO_SYNC)


def list_chores(work: Session) -> Sequence[ChoreRow]:
    return work.scalars(select(ChoreRow).order_by(ChoreRow.name)).all()


def _is_free(now: int) -> tuple[ColumnElement[bool], ...]:
    return ChoreRow.due_at <= now, or_(ChoreRow.holder.is_(None), ChoreRow.lease_expires_at <= now)


def _write(work: Session, held: HeldChore, **values: object) -> None:
    mine = update(ChoreRow).where(ChoreRow.name == held.chore.name, ChoreRow.holder == held.token)
    if work.scalar(mine.values(**values).returning(ChoreRow.name), execution_options=_NO_SYNC) is None:
        raise LeaseLost(held.chore.name)
