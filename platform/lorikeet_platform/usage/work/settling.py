"""Settling by what the engine says a request used, for gateways that did not come to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import structlog
from sqlalchemy.exc import SQLAlchemyError

from lorikeet_engine.client import RequestCounts
from lorikeet_platform.db.session import Database
from lorikeet_platform.usage.ledger import LedgerBroken, Outcome, SettledBy, Settlement, Verdict, record_costs, settle
from lorikeet_platform.usage.settling import IN_TROUBLE

log = structlog.get_logger(__name__)


class CountingEngine(Protocol):
    """`EngineLink` is one; both raise EngineUnavailable."""

    def counts(self, request_ids: Sequence[str] = ()) -> Sequence[RequestCounts]: ...
    def settled(self, request_ids: Sequence[str]) -> None: ...


@dataclass(frozen=True, slots=True)
class Used:
    """What a request used, as far as anybody knows."""

    tenant_id: str
    request_id: str
    outcome: Outcome
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


def used_by(counts: RequestCounts) -> Used:
    """A request without a token costs nothing. Its caller was gone; where the engine lost it, that was our fault."""
    outcome: Outcome = "server_error" if counts.state == "lost" else "client_cancelled"
    if not counts.completion_tokens:
        return Used(counts.tenant, counts.request_id, outcome)
    return Used(
        counts.tenant,
        counts.request_id,
        outcome,
        counts.prompt_tokens,
        counts.cached_tokens,
        counts.completion_tokens,
    )


@dataclass(slots=True)
class Round:
    """How settling several went.

    Attributes:
        failed: ids of those that could not be settled; they stay open, and are tried again the next time.
    """

    verdicts: Counter[Verdict] = field(default_factory=Counter)
    failed: set[str] = field(default_factory=set)


def settle_all(db: Database, uses: Iterable[Used], settled_by: SettledBy, now: int) -> Round:
    """Each in a transaction of its own: one that cannot be settled keeps no other tenant's open.

    Raises:
        SQLAlchemyError: the database itself is in trouble; all wait for the next time.
    """
    done = Round()
    for used in uses:
        try:
            with db.tenant(used.tenant_id).unit_of_work() as work:
                verdict = settle(work, _settlement(used, settled_by, now))
        except IN_TROUBLE:
            raise
        except (SQLAlchemyError, LedgerBroken, ValueError) as error:  # ValueError: of what is no tenant's id
            log.error("usage cannot be settled", request_id=used.request_id, error=type(error).__name__)
            done.failed.add(used.request_id)
            continue
        if verdict == "conflict":
            log.error("a settlement disagrees with what is on record", request_id=used.request_id)
        done.verdicts[verdict] += 1
    return done


def note_costs(db: Database, found: Iterable[RequestCounts]) -> None:
    """Write down what these have cost; where that cannot be, the bill stands without.

    Raises:
        SQLAlchemyError: the database itself is in trouble; all wait for the next time.
    """
    try:
        record_costs(db, found)
    except IN_TROUBLE:
        raise
    except SQLAlchemyError as error:
        log.error("costs cannot be recorded", error=type(error).__name__)


def _settlement(used: Used, settled_by: SettledBy, now: int) -> Settlement:
    return Settlement(
        tenant_id=used.tenant_id,
        request_id=used.request_id,
        outcome=used.outcome,
        prompt_tokens=used.prompt_tokens,
        completion_tokens=used.completion_tokens,
        cached_tokens=used.cached_tokens,
        settled_by=settled_by,
        settled_at=now,
    )
