"""Draining what the engine remembers of requests that nobody settled: their gateway died, or forgot them.

A gateway that lives and could not write keeps its own: it knows how they ended, and what it delivered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from lorikeet_engine.errors import EngineUnavailable
from lorikeet_platform.clock import Clock, now_us
from lorikeet_platform.db.session import Database
from lorikeet_platform.usage.ledger import Verdict
from lorikeet_platform.usage.work.owners import owned
from lorikeet_platform.usage.work.settling import CountingEngine, note_costs, settle_all, used_by
from lorikeet_platform.usage.work.totals import with_totals

NAME: Final = "usage.outbox"
MAX_ROUNDS: Final = 100  # an engine that offers the same for ever is left to the next time


class OutboxDrain:
    """Settles every ended request that the engine offers and no gateway has; only then the engine may forget it."""

    def __init__(self, db: Database, engine: CountingEngine, clock: Clock = now_us) -> None:
        self._db, self._engine, self._clock = db, engine, clock

    def run(self) -> Mapping[str, Any]:
        """One round; without an engine there is nothing to drain."""
        verdicts: Counter[Verdict] = Counter()
        seen: set[str] = set()
        kept: set[str] = set()  # their gateways', or impossible to settle
        n_failed = n_waiting = 0
        try:
            for _ in range(MAX_ROUNDS):
                offered = {entry.request_id: entry for entry in self._engine.counts()}
                if not offered.keys() - seen:
                    break
                now = self._clock()
                waiting = owned(self._db, offered.keys() - seen, now)
                kept |= waiting
                new = [entry for request_id, entry in offered.items() if request_id not in kept]
                done = settle_all(self._db, map(used_by, new), "engine_outbox", now)
                verdicts += done.verdicts
                kept |= done.failed
                n_failed, n_waiting = n_failed + len(done.failed), n_waiting + len(waiting)
                seen.update(offered)
                if on_record := [entry for entry in new if entry.request_id not in kept]:
                    note_costs(self._db, on_record)
                    self._engine.settled([entry.request_id for entry in on_record])
        except EngineUnavailable:
            pass  # what it told is on record, and told again: it changes nothing then
        # `unknown`: asked by the platform itself, to certify an adapter or to warm it.
        figures = {"settled": verdicts["settled"], "conflicts": verdicts["conflict"], "unmetered": verdicts["unknown"]}
        return with_totals(self._db, NAME, figures) | {"waiting": n_waiting, "failed": n_failed}
