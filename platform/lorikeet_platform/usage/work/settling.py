"""Settling by what the engine says a request used, for gateways that did not come to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from lorikeet_engine.client import RequestCounts
from lorikeet_platform.db.session import Database
from lorikeet_platform.usage.ledger import Outcome, SettledBy, Settlement, Verdict, settle

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


def settle_all(db: Database, uses: Iterable[Used], settled_by: SettledBy, now: int) -> Counter[Verdict]:
    """Each in a transaction of its own; how it went, by verdict."""
    verdicts: Counter[Verdict] = Counter()
    for used in uses:
        settlement = Settlement(
            tenant_id=used.tenant_id,
            request_id=used.request_id,
            outcome=used.outcome,
            prompt_tokens=used.prompt_tokens,
            completion_tokens=used.completion_tokens,
            cached_tokens=used.cached_tokens,
            settled_by=settled_by,
            settled_at=now,
        )
        with db.tenant(used.tenant_id).unit_of_work() as work:
            verdict = settle(work, settlement)
        if verdict == "conflict":
            log.error("a settlement disagrees with what is on record", request_id=used.request_id)
        verdicts[verdict] += 1
    return verdicts
