"""Settling what nobody will: records whose gateway is gone, by what the engine knows, or as having used nothing.

A reservation that nobody gives back would keep a paying tenant from its own budget.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import exists, or_, select

from lorikeet_engine.errors import EngineUnavailable
from lorikeet_platform.clock import HOUR, SECOND, Clock, now_us
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import Gateway, UsageRecord
from lorikeet_platform.usage.work.settling import CountingEngine, Used, settle_all, used_by
from lorikeet_platform.usage.work.totals import with_totals

NAME: Final = "usage.reaper"
OWNERLESS_AFTER_US: Final = 120 * SECOND
LONGER_THAN_ANY_US: Final = HOUR  # a request that its living gateway still has open then was forgotten by it
BATCH: Final = 500


class Reaper:
    """Settles open records without an owner; a record whose request still runs in the engine waits."""

    def __init__(self, db: Database, engine: CountingEngine, clock: Clock = now_us) -> None:
        self._db, self._engine, self._clock = db, engine, clock

    def run(self) -> Mapping[str, Any]:
        """One round. While no engine answers all of them wait: it may know what they used."""
        now, n_reaped, n_conflicts, n_waiting, n_failed, last = self._clock(), 0, 0, 0, 0, ""
        try:
            while ownerless := self._ownerless(now, last):
                last = ownerless[-1][1]
                known = {entry.request_id: entry for entry in self._engine.counts([each for _, each in ownerless])}
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
                    self._engine.settled(ids)
        except EngineUnavailable:
            n_waiting += len(ownerless)
        figures = {"reaped": n_reaped, "conflicts": n_conflicts}
        return with_totals(self._db, NAME, figures) | {"waiting": n_waiting, "failed": n_failed}

    def _ownerless(self, now: int, last: str) -> Sequence[tuple[str, str]]:
        """Tenants and ids of a part of them, in the order of their ids."""
        is_alive = exists().where(Gateway.id == UsageRecord.gateway_id, Gateway.seen_at > now - OWNERLESS_AFTER_US)
        statement = (
            select(UsageRecord.tenant_id, UsageRecord.request_id)
            .where(
                UsageRecord.state == "open",
                UsageRecord.admitted_at < now - OWNERLESS_AFTER_US,
                or_(~is_alive, UsageRecord.admitted_at < now - LONGER_THAN_ANY_US),
                UsageRecord.request_id > last,
            )
            .order_by(UsageRecord.request_id)
            .limit(BATCH)
        )
        with self._db.platform.read() as work:
            return [(row[0], row[1]) for row in work.execute(statement)]
