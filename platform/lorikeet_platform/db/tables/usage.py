"""Usage records, budgets and roll-ups: shape and constraints. No column ever holds content."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Float, ForeignKey, ForeignKeyConstraint, Index, String, text
from sqlalchemy.orm import Mapped, mapped_column

from lorikeet_platform.db.tables.metadata import Count, Id, Micros, Size, Table, TenantOwned, one_of

OUTCOMES = ("ok", "client_cancelled", "server_error", "deadline", "revoked", "shed")
SETTLERS = ("gateway", "engine_outbox", "reaper")
GRANULARITIES = ("hour", "day")
_OPEN = text("state = 'open'")


class UsageRecord(TenantOwned, Table):
    """One admitted request. `est_tokens` are reserved in both budgets, the tenant's and the key's, while it is open."""

    __tablename__ = "usage_records"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "key_id"], ["api_keys.tenant_id", "api_keys.id"]),
        ForeignKeyConstraint(["tenant_id", "adapter_id"], ["adapters.tenant_id", "adapters.id"]),
        ForeignKeyConstraint(["tenant_id", "version_id"], ["adapter_versions.tenant_id", "adapter_versions.id"]),
        one_of("state", ("open", "settled")),
        one_of("outcome", OUTCOMES),
        one_of("settled_by", SETTLERS),
        CheckConstraint(
            "(state = 'open' AND outcome IS NULL AND settled_at IS NULL AND settled_by IS NULL) "
            "OR (state = 'settled' AND outcome IS NOT NULL AND settled_at IS NOT NULL AND settled_by IS NOT NULL)",
            name="settled",
        ),
        CheckConstraint("prompt_tokens >= 0 AND completion_tokens >= 0 AND est_tokens >= 0", name="tokens"),
        CheckConstraint("cached_tokens >= 0 AND cached_tokens <= prompt_tokens", name="cached_tokens"),
        CheckConstraint("n >= 1", name="n"),
        Index("ix_usage_records_tenant_id_admitted_at", "tenant_id", "admitted_at"),
        Index("ix_usage_records_version", "tenant_id", "version_id", "admitted_at"),
        Index("ix_usage_records_open", "admitted_at", sqlite_where=_OPEN, postgresql_where=_OPEN),
    )

    tenant_id: Mapped[Id] = mapped_column(primary_key=True)
    request_id: Mapped[Id] = mapped_column(primary_key=True, unique=True)
    key_id: Mapped[Id]
    subject_id: Mapped[Id] = mapped_column(doc="the key's lineage")
    gateway_id: Mapped[Id | None] = mapped_column(doc="who admitted it, and settles it while it lives")
    route: Mapped[str] = mapped_column(String(64))
    base_model: Mapped[str] = mapped_column(String(128))
    adapter_id: Mapped[Id | None]
    version_id: Mapped[Id | None]
    stream: Mapped[bool]
    n: Mapped[Count] = mapped_column(default=1, server_default=text("1"))
    state: Mapped[str] = mapped_column(String(16), default="open")
    outcome: Mapped[str | None] = mapped_column(String(32))
    settled_by: Mapped[str | None] = mapped_column(String(16))
    est_tokens: Mapped[Size] = mapped_column(default=0, server_default=text("0"), doc="prompt + n × max_tokens")
    prompt_tokens: Mapped[Count] = mapped_column(default=0)
    completion_tokens: Mapped[Count] = mapped_column(default=0)
    cached_tokens: Mapped[Count] = mapped_column(
        default=0, server_default=text("0"), doc="the part of prompt_tokens found in the prefix cache"
    )
    period_start: Mapped[Micros] = mapped_column(doc="first moment of the month of the budget, UTC")
    admitted_at: Mapped[Micros]
    first_token_at: Mapped[Micros | None]
    settled_at: Mapped[Micros | None]


class Costs:
    """What requests took of the engine: `lorikeet_engine.cost_vector.CostVector`, field by field."""

    prefill_flops: Mapped[float] = mapped_column(Float)
    decode_flops: Mapped[float] = mapped_column(Float)
    prefill_read_bytes: Mapped[float] = mapped_column(Float)
    decode_read_bytes: Mapped[float] = mapped_column(Float)
    write_bytes: Mapped[float] = mapped_column(Float)
    kv_byte_seconds: Mapped[float] = mapped_column(Float)
    adapter_byte_seconds: Mapped[float] = mapped_column(Float)
    load_bytes: Mapped[float] = mapped_column(Float)
    wasted_flops: Mapped[float] = mapped_column(Float)
    swap_bytes: Mapped[float] = mapped_column(Float)


class UsageCost(Costs, TenantOwned, Table):
    """What one request cost; written once, a moment after its record was settled, and never if its engine was lost."""

    __tablename__ = "usage_costs"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "request_id"], ["usage_records.tenant_id", "usage_records.request_id"]),
    )

    tenant_id: Mapped[Id] = mapped_column(primary_key=True)
    request_id: Mapped[Id] = mapped_column(primary_key=True)


class BudgetCounter(TenantOwned, Table):
    """Tokens of one subject (a tenant, or a key's lineage) in one month."""

    __tablename__ = "budget_counters"
    __table_args__ = (CheckConstraint("reserved >= 0 AND settled >= 0", name="figures"),)

    tenant_id: Mapped[Id] = mapped_column(ForeignKey("tenants.id"), primary_key=True)
    subject_id: Mapped[Id] = mapped_column(primary_key=True)
    period_start: Mapped[Micros] = mapped_column(primary_key=True, autoincrement=False)
    reserved: Mapped[Size] = mapped_column(default=0)
    settled: Mapped[Size] = mapped_column(default=0)


class UsageRollup(Costs, TenantOwned, Table):
    """Settled requests of one hour or day (by admission), key and version. Computed whole, never added to."""

    __tablename__ = "usage_rollups"
    __table_args__ = (one_of("granularity", GRANULARITIES),)

    tenant_id: Mapped[Id] = mapped_column(ForeignKey("tenants.id"), primary_key=True)
    granularity: Mapped[str] = mapped_column(String(8), primary_key=True)
    bucket_start: Mapped[Micros] = mapped_column(primary_key=True, autoincrement=False)
    key_id: Mapped[Id] = mapped_column(primary_key=True)
    base_model: Mapped[str] = mapped_column(String(128), primary_key=True)
    version_id: Mapped[str] = mapped_column(String(32), primary_key=True, doc="empty = the base model itself")
    adapter_id: Mapped[str] = mapped_column(String(32), doc="empty = the base model itself")
    requests: Mapped[Size]
    errors: Mapped[Size] = mapped_column(doc="of them, those that did not end with `ok`")
    prompt_tokens: Mapped[Size]
    cached_tokens: Mapped[Size]
    completion_tokens: Mapped[Size]
    requests_without_cost: Mapped[Size] = mapped_column(doc="those that used tokens and have no cost")
    computed_at: Mapped[Micros]


class DirtyBucket(TenantOwned, Table):
    """A bucket to be rolled up again; marked in the transaction that settles a record, or writes its cost."""

    __tablename__ = "usage_dirty"
    __table_args__ = (one_of("granularity", GRANULARITIES),)

    tenant_id: Mapped[Id] = mapped_column(ForeignKey("tenants.id"), primary_key=True)
    granularity: Mapped[str] = mapped_column(String(8), primary_key=True)
    bucket_start: Mapped[Micros] = mapped_column(primary_key=True, autoincrement=False)
    marks: Mapped[Count] = mapped_column(default=1)
