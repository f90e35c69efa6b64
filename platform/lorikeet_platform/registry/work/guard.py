"""The guard of a canary: an alias goes back by itself when its smaller share does worse than its larger one.

Compared are the target with the smallest share and the one with the largest, over the requests of both since the alias
was last changed. Requests count by version, however they named it.

error rate    the canary's share of failed requests is above the guard's bound, and above the other's share
first token   the canary's 95th percentile is above the guard's ratio to the other's

A request failed when the server made an error or its time ran out; one whose caller left, or that was turned away, says
nothing of its version and is not counted. One that ran out of time without a first token waited for it for ever.

Nothing is judged before the canary has the guard's number of requests, and no ratio before the other has it, too. An
alias with one target has nothing to be compared with.

The way back leads to nothing but what the alias points at already, less the canary: it cannot bring in another canary,
and a guard that acts again and again ends at one target.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import structlog
from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from lorikeet_platform.auth.actor import SYSTEM
from lorikeet_platform.clock import Clock, now_us
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import Alias, UsageRecord
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.registry.aliasing.aliases import (
    AliasKey,
    Change,
    Pointing,
    Target,
    check_ready,
    point,
    pointing_of,
    targets_of,
    ways_back,
)
from lorikeet_platform.registry.schemas import Guard

log = structlog.get_logger(__name__)

PERCENTILE: Final = 0.95
FAILED: Final = ("server_error", "deadline")


@dataclass(frozen=True, slots=True)
class Figures:
    """One version's requests since some moment: those answered or failed, those that failed, their first tokens' times.

    Attributes:
        ttft_p95_us: infinite when more than 5 % ran out of time without a first token; None without any request.
    """

    requests: int
    failed: int
    ttft_p95_us: float | None

    @property
    def error_rate(self) -> float:
        return self.failed / self.requests if self.requests else 0.0


def complaint(guard: Guard, canary: Figures, other: Figures) -> str | None:
    """Why the canary must not go on, with the figures; None when it may, or when there is too little to judge by."""
    if canary.requests < guard.min_requests:
        return None
    bound = guard.max_error_rate
    if bound is not None and canary.error_rate > max(bound, other.error_rate):
        return (
            f"{canary.failed} of {canary.requests} requests failed, allowed: {bound:.1%}; "
            f"of the others {other.failed} of {other.requests}"
        )
    ratio, mine, theirs = guard.max_ttft_ratio, canary.ttft_p95_us, other.ttft_p95_us
    if ratio is None or mine is None or theirs is None or other.requests < guard.min_requests:
        return None
    if mine <= ratio * theirs:
        return None
    came = f"95 % of its first tokens came within {mine / 1_000:.0f} ms"
    if mine == math.inf:
        came = "more than 5 % of its requests ran out of time without a first token"
    return f"{came}, allowed: {ratio:g} times as long as the others', within {theirs / 1_000:.0f} ms"


def figures_of(work: Session, tenant_id: str, version_id: str, since: int) -> Figures:
    """What the usage records say of a version's requests that were admitted after `since`."""
    mine = (
        UsageRecord.tenant_id == tenant_id,
        UsageRecord.version_id == version_id,
        UsageRecord.admitted_at >= since,
        UsageRecord.outcome.in_(("ok", *FAILED)),
    )
    by_outcome = select(UsageRecord.outcome, func.count().label("n")).where(*mine).group_by(UsageRecord.outcome)
    counts = {row.outcome: row.n for row in work.execute(by_outcome)}
    failed = sum(counts.get(outcome, 0) for outcome in FAILED)
    return Figures(counts.get("ok", 0) + failed, failed, _ttft_p95_us(work, mine))


class AliasGuards:
    """A chore: judges every alias that has a guard and more than one target."""

    def __init__(self, *, db: Database, clock: Clock = now_us) -> None:
        self._db, self._clock = db, clock

    def judge_all(self) -> None:
        guarded = select(Alias.tenant_id, Alias.adapter_id, Alias.alias).where(Alias.guard.is_not(None))
        with self._db.platform.read() as work:
            keys = [AliasKey(*row) for row in work.execute(guarded)]
        for key in keys:
            try:
                self._judge(key)
            except PlatformError as error:  # it was changed meanwhile; the next round judges what it says now
                log.info("an alias was not judged", alias=key.alias, reason=error.message)

    def _judge(self, key: AliasKey) -> None:
        with self._db.tenant(key.tenant_id).read() as work:
            alias = work.get(Alias, (key.tenant_id, key.adapter_id, key.alias))
            targets = targets_of(work, key)
            if alias is None or alias.guard is None or len(targets) < 2:
                return
            canary, other = _compared(targets)
            guard = Guard.model_validate(alias.guard)
            figures = figures_of(work, key.tenant_id, canary.version_id, alias.updated_at)
            if figures.requests < guard.min_requests:
                return
            reason = complaint(guard, figures, figures_of(work, key.tenant_id, other.version_id, alias.updated_at))
            if reason is None:
                return
            back, in_place_of = _way_back(work, key, alias, canary, other)
        told = f"the guard: version {canary.number} against {other.number}: {reason}"
        change = Change(
            actor=SYSTEM,
            now=self._clock(),
            reason=told[:500],
            expected=alias.revision,
            in_place_of=in_place_of,
            action="alias.guard_rollback",
        )
        with self._db.tenant(key.tenant_id).unit_of_work() as work:
            point(work, key, back, change)
        log.warning("an alias went back", alias=key.alias, adapter=key.adapter_id, reason=told)


def _compared(targets: tuple[Target, ...]) -> tuple[Target, Target]:
    """The canary and what it is compared with; of equal shares the newest version is the canary."""
    canary = min(targets, key=lambda target: (target.weight, -target.number))
    others = [target for target in targets if target is not canary]
    return canary, max(others, key=lambda target: (target.weight, -target.number))


def _way_back(work: Session, key: AliasKey, alias: Alias, canary: Target, other: Target) -> tuple[Pointing, int]:
    """What the alias shall say, and the revision whose place that takes.

    That is the last revision which has no target but the present ones without the canary, or all to the other target.
    """
    staying = {target.version_id for target in targets_of(work, key)} - {canary.version_id}
    for change in ways_back(work, key):
        pointing = pointing_of(change)
        if staying.issuperset(target.version_id for target in pointing.targets) and _is_ready(work, key, pointing):
            return pointing, change.revision
    return Pointing(targets=(Target(other.version_id, other.number),)), alias.revision


def _is_ready(work: Session, key: AliasKey, pointing: Pointing) -> bool:
    try:
        check_ready(work, key, pointing.targets)
    except PlatformError:
        return False
    return True


def _ttft_p95_us(work: Session, mine: tuple[ColumnElement[bool], ...]) -> float | None:
    """Nearest rank: the smallest time that 95 of 100 requests keep."""
    answered = (*mine, UsageRecord.first_token_at.is_not(None))
    came = _count(work, answered)
    never = _count(work, (*mine, UsageRecord.first_token_at.is_(None), UsageRecord.outcome == "deadline"))
    if not came + never:
        return None
    rank = math.ceil(PERCENTILE * (came + never))
    if rank > came:
        return math.inf
    wait = UsageRecord.first_token_at - UsageRecord.admitted_at
    return work.scalar(select(wait).where(*answered).order_by(wait).offset(rank - 1).limit(1))


def _count(work: Session, which: tuple[ColumnElement[bool], ...]) -> int:
    return work.scalar(select(func.count()).select_from(UsageRecord).where(*which)) or 0
