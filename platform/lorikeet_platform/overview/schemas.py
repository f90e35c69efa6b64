"""The first page's figures as the API shows them. Memory is in bytes, totals count from the engine's start."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

EngineState = Literal["ready", "starting", "unavailable"]


class TenantBytes(BaseModel):
    tenant: str
    bytes: int


class Ledger(BaseModel):
    """One pool: capacity = used + reserved + in_flight + cached + free, and free + by_tenant = capacity."""

    name: str
    unit: Literal["bytes"] = "bytes"
    capacity: int
    used: int
    reserved: int
    in_flight: int
    cached: int
    free: int
    shared: int = Field(description="part of used that several requests use at once")
    fragmentation: int = Field(description="held inside allocations but not usable")
    external_fragmentation: int = Field(description="free, but outside the largest free run")
    by_tenant: list[TenantBytes]


class TenantQueue(BaseModel):
    """What one tenant has waiting and running; tenants at work only."""

    tenant: str
    waiting: int
    running: int
    weight: float
    service: float = Field(description="virtual counter: tokens served, divided by the weight; the lowest is next")


class TenantPrefixUse(BaseModel):
    tenant: str
    queried_tokens: int
    hit_tokens: int


class AdapterPrefixUse(BaseModel):
    tenant: str
    adapter: str = Field(description="name:version, or the base model's name")
    queried_tokens: int
    hit_tokens: int


class PrefixCache(BaseModel):
    """Prompt tokens looked up and found, each request once; and why the first missing block of a prompt was missing."""

    queried_tokens: int
    hit_tokens: int
    hit_rate: float | None = Field(description="hit_tokens / queried_tokens; null before the first request")
    recomputed_hit_tokens: int = Field(description="found again after a preemption; not part of the rate")
    by_tenant: list[TenantPrefixUse]
    by_adapter: list[AdapterPrefixUse] = Field(description="the busiest ones")
    misses: dict[str, int]


class ResidencyCounts(BaseModel):
    """Where the ready adapter versions are: in the store only, or how far on their way to the arena."""

    cold: int
    loading: int
    host: int
    resident: int
    draining: int


class ResidentAdapter(BaseModel):
    tenant: str
    adapter: str
    digest: str
    state: str
    bytes: int
    requests: int
    waiting: int
    heat: float = Field(description="requests a minute that started on it of late")


class AdapterTraffic(BaseModel):
    """Moves of adapters; stall_s adds up the time that requests waited for nothing but their adapter."""

    loads: dict[str, int]
    evictions: dict[str, int]
    stall_s: float
    longest_wait_s: float


class Preemptions(BaseModel):
    """What was done when KV blocks ran out: copy a request to host memory, compute it again later, or let it wait."""

    swap: int
    recompute: int
    wait: int
    recomputed_tokens: int
    swap_out_bytes: int
    swap_in_bytes: int


class Refusals(BaseModel):
    """Requests that were not taken, by reason, and those that were taken but expired in the queue."""

    by_reason: dict[str, int]
    expired: int


class EngineOverview(BaseModel):
    """The engine's part; figures are null or empty while no engine answers."""

    state: EngineState
    model: str
    device: str | None = None
    dtype: str | None = None
    max_model_len: int | None = None
    uptime_s: float = 0.0
    running: int = 0
    waiting: int = 0
    swapped: int = 0
    seats: int = Field(default=0, description="how many requests may run now; memory pressure lowers it")
    max_seats: int = Field(default=0, description="how many may run without memory pressure")
    tokens_per_second: float = 0.0
    prompt_tokens_total: int = 0
    generated_tokens_total: int = 0
    steps_total: int = 0
    queues: list[TenantQueue] = []
    kv: Ledger | None = None
    arena: Ledger | None = None
    host: Ledger | None = None
    swap: Ledger | None = None
    prefix: PrefixCache | None = None
    residency: ResidencyCounts | None = None
    adapters: list[ResidentAdapter] = Field(default=[], description="the busiest ones that the engine knows")
    adapter_traffic: AdapterTraffic | None = None
    preemptions: Preemptions | None = None
    refusals: Refusals | None = None


class BooksChecked(BaseModel):
    """The last time that usage records, budgets and roll-ups were compared."""

    checked_at: int
    mismatches: int | None = Field(description="sums that they do not agree on; null = the comparison failed")


class Overview(BaseModel):
    engine: EngineOverview
    tenants: int
    adapters_ready: int
    jobs_open: int
    gateways: int = Field(description="gateways that were seen within the last seconds")
    rates_degraded: bool = Field(description="Redis is lost: this gateway counts its share of the rates alone")
    books: BooksChecked | None = Field(description="null before the first comparison")
