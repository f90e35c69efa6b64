"""Metering: one record per admitted request, opened before the engine is asked, settled exactly once.

Opening reserves what the request may use in the month's budgets, of the tenant and of the key; a request that no budget
can hold is refused. Counts come from the engine; this module only writes them down. A request that is refused before
the engine is asked never gets here.

Outcomes: `ok`; `server_error` our fault, an adapter that cannot be loaded with it; `deadline` it waited too long;
`client_cancelled` its caller left; `shed` turned away by the engine, or ended because the server or its adapter is
going; `revoked` its key was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol

import structlog
from prometheus_client import CollectorRegistry
from sqlalchemy.exc import SQLAlchemyError

from lorikeet_engine.client import RequestCounts
from lorikeet_platform.auth.principal import Principal
from lorikeet_platform.clock import Clock, now_us, unix_seconds
from lorikeet_platform.db.session import Database
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.telemetry.ledger import LedgerMetrics
from lorikeet_platform.usage import ledger
from lorikeet_platform.usage.ledger import NotReserved, Opening, Outcome, Settlement, Shortage, Verdict
from lorikeet_platform.usage.periods import month_start, next_month_start

log = structlog.get_logger(__name__)

# Between a refused reservation and the look at why, others may have given back what was missing.
TRIES: Final = 5


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


@dataclass(frozen=True, slots=True)
class Ticket:
    """The open record of one request."""

    tenant_id: str
    request_id: str
    clock: Clock

    def settlement(
        self,
        usage: TokenCounts,
        outcome: Outcome,
        *,
        answered_by: MeteredModel | None = None,
        first_token_at: int | None = None,
    ) -> Settlement:
        """How the request ended.

        Args:
            answered_by: where it is not what the record was opened for.
        """
        return Settlement(
            tenant_id=self.tenant_id,
            request_id=self.request_id,
            outcome=outcome,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            cached_tokens=usage.cached_tokens,
            settled_by="gateway",
            settled_at=self.clock(),
            first_token_at=first_token_at,
            answered_by=None if answered_by is None else (answered_by.adapter_id, answered_by.version_id),
        )


class NotRecorded(PlatformError):
    """A request is refused because it could not be recorded.

    Attributes:
        ticket: of a record that may be there all the same, to be settled; None = there is none.
    """

    def __init__(self, ticket: Ticket | None) -> None:
        super().__init__("metering_unavailable")
        self.ticket = ticket


class _AnswerLost(Exception):
    """The database was asked to commit, and whether it did is not known."""


class UsageService:
    """Opens tickets and settles them. Synchronous: the inference path calls it in threads.

    Args:
        gateway_id: whose records these are to settle, as long as it lives.
    """

    def __init__(
        self,
        db: Database,
        *,
        gateway_id: str | None = None,
        metrics: LedgerMetrics | None = None,
        clock: Clock = now_us,
    ) -> None:
        self._db, self._clock, self._gateway_id = db, clock, gateway_id
        self.metrics = LedgerMetrics(CollectorRegistry()) if metrics is None else metrics

    def open(
        self,
        *,
        request_id: str,
        principal: Principal,
        resolved: MeteredModel,
        route: str,
        stream: bool,
        n: int,
        est_tokens: int,
    ) -> Ticket:
        """Record that a request is admitted.

        Args:
            est_tokens: the most that it can use.

        Raises:
            PlatformError: insufficient_quota; metering_unavailable, as NotRecorded where the database failed: what
                cannot be metered is not served.
        """
        now = self._clock()
        opening = Opening(
            tenant_id=principal.tenant_id,
            request_id=request_id,
            key_id=principal.key_id,
            subject_id=principal.subject_id,
            gateway_id=self._gateway_id,
            route=route,
            base_model=resolved.base_model,
            adapter_id=resolved.adapter_id,
            version_id=resolved.version_id,
            stream=stream,
            n=n,
            est_tokens=est_tokens,
            period_start=month_start(now),
            admitted_at=now,
        )
        ticket = Ticket(principal.tenant_id, request_id, self._clock)
        try:
            self._reserve(opening, principal)
        except SQLAlchemyError as error:
            log.error("usage cannot be recorded", request_id=request_id, exc_info=error)
            raise NotRecorded(None) from error
        except _AnswerLost as error:
            log.error("usage may be recorded or not", request_id=request_id, exc_info=error.__cause__)
            self.metrics.open.inc()
            raise NotRecorded(ticket) from error
        self.metrics.open.inc()
        return ticket

    def settle(self, settlement: Settlement) -> Verdict:
        """Close a record; the first to do so decides.

        Raises:
            SQLAlchemyError, LedgerBroken: nothing was written.
        """
        with self._db.tenant(settlement.tenant_id).unit_of_work() as work:
            verdict = ledger.settle(work, settlement)
        self.metrics.open.dec()
        if verdict == "settled":
            self.metrics.settled.labels(settlement.settled_by).inc()
        elif verdict != "already" and not _is_nothing(verdict, settlement):
            self.metrics.conflicts.inc()
            log.error("a settlement disagrees with what is on record", request_id=settlement.request_id)
        return verdict

    def record_costs(self, found: Sequence[RequestCounts]) -> None:
        """Write down what settled requests have cost, of whichever tenants.

        Raises:
            SQLAlchemyError: nothing was written.
        """
        ledger.record_costs(self._db, found)

    def observe_lag(self, seconds: float) -> None:
        """How long a settlement took from its request's end."""
        self.metrics.settle_lag_seconds.observe(seconds)

    def _reserve(self, opening: Opening, principal: Principal) -> None:
        of_tenant = principal.limits.of_tenant["monthly_tokens"].value
        # What has no limit of its own has its tenant's: it never uses more than all of them together.
        of_key = principal.limits["monthly_tokens"].value
        transactions = self._db.tenant(opening.tenant_id)
        for _ in range(TRIES):
            is_reserved = False
            try:
                with transactions.unit_of_work() as work:
                    ledger.open_record(work, opening, limit_of_tenant=of_tenant, limit_of_key=of_key)
                    is_reserved = True
                return
            except SQLAlchemyError as error:
                if is_reserved:
                    raise _AnswerLost from error
                raise
            except NotReserved:
                with transactions.unit_of_work() as work:
                    shortage = ledger.find_shortage(work, opening, limit_of_tenant=of_tenant, limit_of_key=of_key)
            if shortage is not None:
                self.metrics.refusals.inc()
                raise insufficient_quota(opening, shortage)
        raise PlatformError("metering_unavailable", "The month's tokens are contended for right now.")


def _is_nothing(verdict: Verdict, settlement: Settlement) -> bool:
    """What was perhaps never recorded, and used nothing."""
    return verdict == "unknown" and settlement.prompt_tokens + settlement.completion_tokens == 0


def insufficient_quota(opening: Opening, shortage: Shortage) -> PlatformError:
    """Waiting for the next month, a larger budget or a smaller request are the only ways out."""
    whose = "tenant" if shortage.is_of_tenant else "API key"
    reset = datetime.fromtimestamp(unix_seconds(next_month_start(opening.period_start)), UTC)
    return PlatformError(
        "insufficient_quota",
        f"The request may use {opening.est_tokens} tokens; of the {whose}'s {shortage.limit} tokens a month "
        f"{shortage.left} are left until {reset:%Y-%m-%dT%H:%M:%SZ}.",
    )
