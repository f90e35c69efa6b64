"""The first page's figures as the API shows them. Amounts of memory are bytes."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

EngineState = Literal["ready", "starting", "unavailable"]


class TenantBytes(BaseModel):
    tenant: str
    bytes: int


class Ledger(BaseModel):
    """One pool: capacity = used + reserved + in_flight + cached + free."""

    name: str
    unit: Literal["bytes"] = "bytes"
    capacity: int
    used: int
    reserved: int
    in_flight: int
    cached: int
    free: int
    fragmentation: int
    by_tenant: list[TenantBytes]


class ResidentAdapter(BaseModel):
    tenant: str
    adapter: str
    digest: str
    state: str
    bytes: int
    requests: int


class EngineOverview(BaseModel):
    state: EngineState
    model: str
    device: str | None = None
    dtype: str | None = None
    max_model_len: int | None = None
    uptime_s: float = 0.0
    running: int = 0
    waiting: int = 0
    tokens_per_second: float = 0.0
    prompt_tokens_total: int = 0
    generated_tokens_total: int = 0
    steps_total: int = 0
    kv: Ledger | None = None
    arena: Ledger | None = None
    adapters: list[ResidentAdapter] = []


class Overview(BaseModel):
    engine: EngineOverview
    tenants: int
    adapters_ready: int
    jobs_open: int
