"""Draining what the engine remembers of requests that nobody settled: their gateway died, or could not write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from lorikeet_engine.errors import EngineUnavailable
from lorikeet_platform.clock import Clock, now_us
from lorikeet_platform.db.session import Database
from lorikeet_platform.usage.ledger import Verdict
from lorikeet_platform.usage.work.settling import CountingEngine, settle_all, used_by
from lorikeet_platform.usage.work.totals import with_totals

NAME: Final = "usage.outbox"
MAX_ROUNDS: Final = 100  # an engine that offers the same for ever is left to the next time


class OutboxDrain:
    """Settles every ended request that the engine offers; only then the engine may forget it."""

    def __init__(self, db: Database, engine: CountingEngine, clock: Clock = now_us) -> None:
        self._db, self._engine, self._clock = db, engine, clock

    def run(self) -> Mapping[str, Any]:
        """One round; without an engine there is nothing to drain."""
        verdicts: Counter[Verdict] = Counter()
        seen: set[str] = set()
        failed: set[str] = set()
        try:
            for _ in range(MAX_ROUNDS):
                offered = [entry for entry in self._engine.counts() if entry.state != "running"]
                if not {entry.request_id for entry in offered} - seen:
                    break
                new = [entry for entry in offered if entry.request_id not in failed]
                done = settle_all(self._db, map(used_by, new), "engine_outbox", self._clock())
                verdicts += done.verdicts
                failed |= done.failed
                seen.update(entry.request_id for entry in offered)
                if ids := [entry.request_id for entry in new if entry.request_id not in failed]:
                    self._engine.settled(ids)
        except EngineUnavailable:
            pass  # what it told is on record, and told again: it changes nothing then
        # `unknown`: asked by the platform itself, to certify an adapter or to warm it.
        figures = {"settled": verdicts["settled"], "conflicts": verdicts["conflict"], "unmetered": verdicts["unknown"]}
        return with_totals(self._db, NAME, figures) | {"failed": len(failed)}
