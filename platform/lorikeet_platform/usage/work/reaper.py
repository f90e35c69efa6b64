"""Settling what nobody will: records whose gateway is gone, by what the engine knows, or as having used nothing.

A reservation that nobody gives back would keep a paying tenant from its own budget.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from sqlalchemy import select

from lorikeet_engine.errors import EngineUnavailable
from lorikeet_platform.clock import Clock, now_us
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import UsageRecord
from lorikeet_platform.usage.work.owners import OWNERLESS_AFTER_US, has_owner
from lorikeet_platform.usage.work.settling import CountingEngine, Used, note_costs, settle_all, used_by
from lorikeet_platform.usage.work.totals import with_totals

NAME: Final = "usage.reaper"
BATCH: Final = 500


class Reaper:
    """Settles open records without an owner; a record whose request still runs in the engine waits."""

    def __init__(self, db: Database, engine: CountingEngine, clock: Clock = now_us) -> None:
        self._db, self._engine, self._clock = db, engine, clock

    def run(self) -> Mapping[str, Any]:
        """One round. While no engine answers all of them wait: it may know what they used."""
        now, n_reaped, n_conflicts, n_waiting, n_failed, last = self._clock(), 0, 0, 0, 0, ""
        while ownerless := self._ownerless(now, last):
            last = ownerless[-1][1]
            try:
                known = {entry.request_id: entry for entry in self._engine.counts([each for _, each in ownerless])}
            except EngineUnavailable:
                n_waiting += len(ownerless)
                break
            uses = [
                used_by(known[request_id]) if request_id in known else Used(tenant_id, request_id, "server_error")
                for tenant_id, request_id in ownerless
                if request_id not in known or known[request_id].state != "running"
            ]
            n_waiting += len(ownerless) - len(uses)
            done = settle_all(self._db, uses, "reaper", now)
            n_reaped += done.verdicts["settled"]
            n_conflicts += done.verdicts["conflict"]
            n_failed += len(done.failed)
            if ids := [used.request_id for used in uses if used.request_id in known.keys() - done.failed]:
                note_costs(self._db, [known[each] for each in ids])
                with suppress(EngineUnavailable):  # they are on record: it offers them to the drain, which finds so
                    self._engine.settled(ids)
        figures = {"reaped": n_reaped, "conflicts": n_conflicts}
        return with_totals(self._db, NAME, figures) | {"waiting": n_waiting, "failed": n_failed}

    def _ownerless(self, now: int, last: str) -> Sequence[tuple[str, str]]:
        """Tenants and ids of a part of them, in the order of their ids."""
        statement = (
            select(UsageRecord.tenant_id, UsageRecord.request_id)
            .where(
                UsageRecord.state == "open",
                UsageRecord.admitted_at < now - OWNERLESS_AFTER_US,
                ~has_owner(now),
                UsageRecord.request_id > last,
            )
            .order_by(UsageRecord.request_id)
            .limit(BATCH)
        )
        with self._db.platform.read() as work:
            return [(row[0], row[1]) for row in work.execute(statement)]
