"""Usage as the API shows it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from lorikeet_platform.clock import unix_seconds
from lorikeet_platform.usage.records import RecordEntry
from lorikeet_platform.usage.sums import Group, Width
from lorikeet_platform.web.pagination import Page


class Costs(BaseModel):
    """What requests took of the engine, summed up; what requests shared is divided among them.

    Estimates by the model's structure, from the steps that ran: see "What requests cost" in docs/tenancy.md.
    """

    model_config = ConfigDict(from_attributes=True)

    prefill_flops: float = Field(description="operations for prompts, and for what a preemption had dropped")
    decode_flops: float = Field(description="operations for answers")
    prefill_read_bytes: float = Field(description="memory read for prompts")
    decode_read_bytes: float = Field(description="memory read for answers")
    write_bytes: float = Field(description="keys and values written")
    kv_byte_seconds: float = Field(description="KV memory held or promised, times how long")
    adapter_byte_seconds: float = Field(description="adapters' memory on the device while requests ran, times how long")
    load_bytes: float = Field(description="adapters copied to the device")
    wasted_flops: float = Field(description="the part of prefill_flops that a preemption had dropped")
    swap_bytes: float = Field(description="keys and values copied to host memory and back")


class UsageSum(BaseModel):
    """What one bucket and group used. Which of the first fields there are depends on `group_by`."""

    bucket_start: int
    tenant: str | None = Field(default=None, description="with group_by=tenant: its slug")
    key: str | None = Field(default=None, description="with group_by=key: its id")
    key_name: str | None = None
    model: str | None = Field(default=None, description="with group_by=model: the base model")
    adapter: str | None = Field(default=None, description="with group_by=adapter: its name; null for the base model")
    adapter_id: str | None = None
    version: str | None = Field(default=None, description="with group_by=version: name:number; null for the base model")
    version_id: str | None = None
    requests: int = Field(description="settled ones, refused by the engine or answered")
    errors: int = Field(description="of them, those that did not end with `ok`")
    prompt_tokens: int
    cached_tokens: int = Field(description="the part of prompt_tokens found in the prefix cache")
    completion_tokens: int
    costs: Costs
    requests_without_cost: int = Field(description="those that used tokens, and whose cost is not known")


class UsageReport(BaseModel):
    """Buckets lie on UTC, and so do `start` and `end`; those in which nothing was settled are left out.

    CSV has each cost in a column of its own, and only JSON the sums over all rows.
    """

    object: Literal["usage"] = "usage"
    bucket: Width
    start: int
    end: int
    group_by: list[Group]
    data: list[UsageSum]
    costs: Costs = Field(description="of all rows together")
    requests_without_cost: int


class UsageRecord(BaseModel):
    """One admitted request. Times are unix seconds; figures are zero while `state` is open."""

    request_id: str
    key_id: str
    key_name: str
    route: str
    model: str = Field(description="name:number of the adapter's version, or the base model")
    base_model: str
    adapter_id: str | None
    version_id: str | None
    stream: bool
    n: int
    state: Literal["open", "settled"]
    outcome: str | None
    settled_by: str | None
    reserved_tokens: int = Field(description="held in the month's budgets until the record is settled")
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    admitted_at: int
    settled_at: int | None
    ttft_ms: int | None = Field(description="from admission to the first token")
    cost: Costs | None = Field(description="null until it is known, and where the engine was lost with it")

    @classmethod
    def of(cls, entry: RecordEntry) -> UsageRecord:
        record = entry.record
        return cls(
            request_id=record.request_id,
            key_id=record.key_id,
            key_name=entry.key_name,
            route=record.route,
            model=entry.model,
            base_model=record.base_model,
            adapter_id=record.adapter_id,
            version_id=record.version_id,
            stream=record.stream,
            n=record.n,
            state="open" if record.state == "open" else "settled",
            outcome=record.outcome,
            settled_by=record.settled_by,
            reserved_tokens=record.est_tokens if record.state == "open" else 0,
            prompt_tokens=record.prompt_tokens,
            cached_tokens=record.cached_tokens,
            completion_tokens=record.completion_tokens,
            admitted_at=unix_seconds(record.admitted_at),
            settled_at=None if record.settled_at is None else unix_seconds(record.settled_at),
            ttft_ms=None if record.first_token_at is None else (record.first_token_at - record.admitted_at) // 1_000,
            cost=None if entry.cost is None else Costs.model_validate(entry.cost),
        )


class UsageRecordPage(Page[UsageRecord]):
    pass
