"""Metering: one record per admitted request, opened before the engine is asked, settled exactly once.

Counts come from the engine; this module only writes them down. A request that is refused before the engine is asked
never gets here.

Outcomes: `ok`; `server_error` our fault, an adapter that cannot be loaded with it; `deadline` it waited too long;
`client_cancelled` its caller left; `shed` turned away by the engine, or ended because the server or its adapter is
going; `revoked` its key was.
"""

from __future__ import annotations

from typing import Literal, Protocol

import structlog
from sqlalchemy import update
from sqlalchemy.exc import SQLAlchemyError

from lorikeet_platform.auth.principal import Principal
from lorikeet_platform.clock import Clock, now_us
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import UsageRecord
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.usage.periods import month_start

log = structlog.get_logger(__name__)

Outcome = Literal["ok", "client_cancelled", "server_error", "deadline", "revoked", "shed"]


class TokenCounts(Protocol):
    """What is billed; the engine's `Usage` is one."""

    @property
    def prompt_tokens(self) -> int: ...
    @property
    def completion_tokens(self) -> int: ...
    @property
    def cached_tokens(self) -> int: ...


class MeteredModel(Protocol):
    """What was asked; `registry.resolve.ResolvedModel` is one."""

    @property
    def base_model(self) -> str: ...
    @property
    def adapter_id(self) -> str | None: ...
    @property
    def version_id(self) -> str | None: ...


class Ticket:
    """The open record of one request."""

    def __init__(self, db: Database, clock: Clock, *, tenant_id: str, request_id: str) -> None:
        self._db, self._clock = db, clock
        self.tenant_id, self.request_id = tenant_id, request_id

    def settle(
        self,
        usage: TokenCounts,
        outcome: Outcome,
        *,
        answered_by: MeteredModel | None = None,
        first_token_at: int | None = None,
    ) -> bool:
        """Close the record; True for the one call that did. Later calls change nothing, in any process.

        Args:
            answered_by: where it is not what the record was opened for.
        """
        values: dict[str, object] = {
            "state": "settled",
            "outcome": outcome,
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "cached_tokens": usage.cached_tokens,
            "first_token_at": first_token_at,
            "settled_at": self._clock(),
            "settled_by": "gateway",
        }
        if answered_by is not None:
            values |= {"adapter_id": answered_by.adapter_id, "version_id": answered_by.version_id}
        statement = (
            update(UsageRecord)
            .where(
                UsageRecord.tenant_id == self.tenant_id,
                UsageRecord.request_id == self.request_id,
                UsageRecord.state == "open",
            )
            .values(values)
            .execution_options(synchronize_session=False)
            .returning(UsageRecord.request_id)
        )
        with self._db.tenant(self.tenant_id).unit_of_work() as work:
            return work.execute(statement).one_or_none() is not None


class UsageService:
    """Opens tickets. Synchronous: the inference path calls it in a thread."""

    def __init__(self, db: Database, *, clock: Clock = now_us) -> None:
        self._db, self._clock = db, clock

    def open(
        self, *, request_id: str, principal: Principal, resolved: MeteredModel, route: str, stream: bool
    ) -> Ticket:
        """Record that a request is admitted.

        Raises:
            PlatformError: metering_unavailable; what cannot be metered is not served.
        """
        now = self._clock()
        record = UsageRecord(
            tenant_id=principal.tenant_id,
            request_id=request_id,
            key_id=principal.key_id,
            subject_id=principal.subject_id,
            period_start=month_start(now),
            route=route,
            base_model=resolved.base_model,
            adapter_id=resolved.adapter_id,
            version_id=resolved.version_id,
            stream=stream,
            admitted_at=now,
        )
        try:
            with self._db.tenant(principal.tenant_id).unit_of_work() as work:
                work.add(record)
        except SQLAlchemyError as error:
            log.error("usage cannot be recorded", request_id=request_id, exc_info=error)
            raise PlatformError("metering_unavailable") from error
        return Ticket(self._db, self._clock, tenant_id=principal.tenant_id, request_id=request_id)
