"""A ledger without gateways: tenants and keys as rows, requests opened and settled by hand, its books added up."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from lorikeet_engine.client import RequestCounts
from lorikeet_engine.cost_vector import COSTS, CostVector
from lorikeet_engine.errors import EngineUnavailable
from lorikeet_platform.auth.principal import Principal
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import AdapterVersion, ApiKey, BudgetCounter, Tenant, UsageRecord, UsageRollup
from lorikeet_platform.ids import new_id
from lorikeet_platform.limits.effective import Figures, effective_limits
from lorikeet_platform.limits.standard import STANDARD
from lorikeet_platform.usage.ledger import Opening, Outcome, SettledBy, Settlement, Verdict, open_record, settle
from lorikeet_platform.usage.periods import month_start
from tests.support import platform_parts as parts

HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US
NOON = 1_767_268_800_000_000  # 2026-01-01T12:00:00Z
NOON_S = NOON // 1_000_000
PLENTY = 10**12


@dataclass(frozen=True)
class Asked:
    """What a request was for: the base model, without more."""

    base_model: str = "tiny"
    adapter_id: str | None = None
    version_id: str | None = None


class Payer(Protocol):
    """Whose request it is; a principal is one."""

    @property
    def tenant_id(self) -> str: ...
    @property
    def key_id(self) -> str: ...
    @property
    def subject_id(self) -> str: ...


class AsPayer:
    """A tenant's first key."""

    def __init__(self, tenant: parts.Tenant) -> None:
        self.tenant_id, self.key_id, self.subject_id = tenant.id, tenant.key_id, tenant.key_id


@dataclass(frozen=True)
class Counts:
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


@dataclass
class CountingEngine:
    """An engine as the ledger's rounds see it: what it remembers, and whether it answers."""

    remembered: dict[str, RequestCounts] = field(default_factory=dict)
    unclaimed: set[str] = field(default_factory=set)
    is_up: bool = True
    told: list[str] = field(default_factory=list)

    def remember(self, counts: RequestCounts, *, unclaimed: bool = True) -> None:
        self.remembered[counts.request_id] = counts
        if unclaimed:
            self.unclaimed.add(counts.request_id)

    def counts(self, request_ids: Sequence[str] = ()) -> list[RequestCounts]:
        if not self.is_up:
            raise EngineUnavailable("no engine")
        asked = request_ids or sorted(self.unclaimed)
        return [self.remembered[each] for each in asked if each in self.remembered]

    def settled(self, request_ids: Sequence[str]) -> None:
        if not self.is_up:
            raise EngineUnavailable("no engine")
        self.told += request_ids
        self.unclaimed -= set(request_ids)
        for each in request_ids:
            self.remembered.pop(each, None)


def counts_of(
    tenant_id: str,
    request_id: str,
    *,
    state: str = "ended",
    prompt: int = 10,
    cached: int = 0,
    completion: int = 5,
    cost: CostVector | None = None,
) -> RequestCounts:
    return RequestCounts(
        request_id=request_id,
        tenant=tenant_id,
        state=state,
        prompt_tokens=prompt,
        cached_tokens=cached,
        completion_tokens=completion,
        cost=cost,
    )


def a_cost(factor: float) -> CostVector:
    """Different in every field, and exact in a float when `factor` is a small integer."""
    return CostVector(**{name: factor * (1 << place) for place, name in enumerate(COSTS)})


def a_payer(db: Database, slug: str, *, monthly: int = PLENTY, of_key: int | None = None) -> Principal:
    """A tenant with a key, and the month's tokens of each."""
    tenant_id = new_id("ten")
    with db.platform.unit_of_work() as work:
        work.add(
            Tenant(id=tenant_id, slug=slug, display_name=slug, cache_salt=secrets.token_bytes(32), created_at=NOON)
        )
        work.flush()
    return another_key(db, _principal(tenant_id, slug, "", monthly, of_key), of_key=of_key)


def another_key(db: Database, payer: Principal, *, of_key: int | None = None, name: str = "") -> Principal:
    """A key of its own lineage, of the same tenant."""
    key_id = new_id("key")
    with db.tenant(payer.tenant_id).unit_of_work() as work:
        work.add(
            ApiKey(
                tenant_id=payer.tenant_id,
                id=key_id,
                public_id=secrets.token_hex(6),
                secret_mac=secrets.token_bytes(32),
                pepper_version=1,
                name=name or key_id,
                hint="abcd",
                scopes=["inference"],
                subject_id=key_id,
                created_by="administrator",
                created_at=NOON,
            )
        )
    monthly = payer.limits.of_tenant["monthly_tokens"].value
    return _principal(payer.tenant_id, payer.tenant_slug, key_id, monthly, of_key)


def _principal(tenant_id: str, slug: str, key_id: str, monthly: int, of_key: int | None) -> Principal:
    key: Figures = {} if of_key is None else {"monthly_tokens": (of_key, None)}
    return Principal(
        tenant_id=tenant_id,
        tenant_slug=slug,
        tenant_status="active",
        key_id=key_id,
        subject_id=key_id,
        scopes=frozenset({"inference"}),
        allowed_adapters=None,
        networks=(),
        limits=effective_limits(STANDARD, {"monthly_tokens": (monthly, None)}, key),
        expires_at=None,
        weight=1.0,
        cache_salt=b"s" * 32,
    )


def without_counters(db: Database, payer: Payer) -> None:
    """A tenant whose records can no longer be settled."""
    with db.platform.unit_of_work() as work:
        work.execute(delete(BudgetCounter).where(BudgetCounter.tenant_id == payer.tenant_id))


def successor(payer: Principal, key_id: str) -> Principal:
    """The same lineage under another key."""
    return replace(payer, key_id=key_id)


def opening_of(payer: Payer, *, at: int = NOON, est: int = 100, **columns: Any) -> Opening:
    values: dict[str, Any] = {
        "tenant_id": payer.tenant_id,
        "request_id": new_id("req"),
        "key_id": payer.key_id,
        "subject_id": payer.subject_id,
        "gateway_id": None,
        "route": "/v1/chat/completions",
        "base_model": "tiny",
        "adapter_id": None,
        "version_id": None,
        "stream": False,
        "n": 1,
        "est_tokens": est,
        "period_start": month_start(at),
        "admitted_at": at,
    }
    return Opening(**(values | columns))


def opened(db: Database, payer: Payer, **columns: Any) -> str:
    """A record that is open, its counters made if they were missing; its request's id."""
    opening = opening_of(payer, **columns)
    with db.tenant(payer.tenant_id).unit_of_work() as work:
        for subject in (payer.tenant_id, payer.subject_id):
            place = {"tenant_id": payer.tenant_id, "subject_id": subject, "period_start": opening.period_start}
            if work.get(BudgetCounter, tuple(place.values())) is None:
                work.add(BudgetCounter(**place, reserved=0, settled=0))
        work.flush()
        open_record(work, opening, limit_of_tenant=PLENTY, limit_of_key=PLENTY)
    return opening.request_id


def settled(
    db: Database,
    payer: Payer,
    request_id: str,
    *,
    prompt: int = 10,
    completion: int = 5,
    cached: int = 0,
    by: SettledBy = "gateway",
    outcome: Outcome = "ok",
    at: int = NOON,
) -> Verdict:
    settlement = Settlement(
        tenant_id=payer.tenant_id,
        request_id=request_id,
        outcome=outcome,
        prompt_tokens=prompt,
        completion_tokens=completion,
        cached_tokens=cached,
        settled_by=by,
        settled_at=at,
    )
    with db.tenant(payer.tenant_id).unit_of_work() as work:
        return settle(work, settlement)


def use(
    db: Database,
    tenant: parts.Tenant,
    *,
    at: int = NOON,
    version: AdapterVersion | None = None,
    figures: tuple[int, int, int] = (10, 4, 5),
    outcome: Outcome = "ok",
) -> str:
    """A settled request; its id."""
    payer = AsPayer(tenant)
    of = {} if version is None else {"adapter_id": version.adapter_id, "version_id": version.id}
    request_id = opened(db, payer, at=at, base_model=parts.BASE, **of)
    settlement = Settlement(
        tenant_id=tenant.id,
        request_id=request_id,
        outcome=outcome,
        prompt_tokens=figures[0],
        cached_tokens=figures[1],
        completion_tokens=figures[2],
        settled_by="gateway",
        settled_at=at,
    )
    with db.tenant(tenant.id).unit_of_work() as work:
        assert settle(work, settlement) == "settled"
    return request_id


@dataclass(frozen=True)
class Books:
    """The sums that must agree, of the whole database."""

    settled_in_records: int
    settled_in_budgets: int  # of tenants
    settled_by_keys: int
    open_estimates: int
    reserved_of_tenants: int
    reserved_of_keys: int
    in_hours: int
    in_days: int

    @property
    def agree(self) -> bool:
        settled = {self.settled_in_records, self.settled_in_budgets, self.settled_by_keys}
        reserved = {self.open_estimates, self.reserved_of_tenants, self.reserved_of_keys}
        return len(settled) == len(reserved) == 1

    @property
    def are_rolled_up(self) -> bool:
        return self.settled_in_records == self.in_hours == self.in_days


def books(db: Database) -> Books:
    record, counter = UsageRecord, BudgetCounter
    billed = record.prompt_tokens + record.completion_tokens
    is_tenant = counter.subject_id == counter.tenant_id
    with db.platform.read() as work:
        return Books(
            _sum(work, billed, record.state == "settled"),
            _sum(work, counter.settled, is_tenant),
            _sum(work, counter.settled, ~is_tenant),
            _sum(work, record.est_tokens, record.state == "open"),
            _sum(work, counter.reserved, is_tenant),
            _sum(work, counter.reserved, ~is_tenant),
            *(
                _sum(
                    work,
                    UsageRollup.prompt_tokens + UsageRollup.completion_tokens,
                    UsageRollup.granularity == granularity,
                )
                for granularity in ("hour", "day")
            ),
        )


def record_of(db: Database, request_id: str) -> UsageRecord:
    with db.platform.read() as work:
        return work.scalars(select(UsageRecord).where(UsageRecord.request_id == request_id)).one()


def _sum(work: Session, what: Any, which: Any) -> int:
    return int(work.scalar(select(func.sum(what)).where(which)) or 0)
