"""Plans as the API takes and shows them. Sizes are in bytes, times in seconds."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

MAX_TOKENS = 10_000_000
MAX_CONCURRENCY = 65_536
MAX_ADAPTERS = 100_000
MAX_RANK = 1024
MAX_BYTES = 1 << 50

Tokens = Annotated[int, Field(ge=1, le=MAX_TOKENS, strict=True)]
Bytes = Annotated[int, Field(ge=0, le=MAX_BYTES, strict=True)]
Name = Annotated[str, Field(min_length=1, max_length=100)]


class PlannedAdapters(BaseModel):
    """Adapters of one shape; `modules` by PEFT's names, q_proj and v_proj unless said."""

    model_config = ConfigDict(extra="forbid")

    count: int = Field(ge=1, le=MAX_ADAPTERS, strict=True)
    rank: int = Field(ge=1, le=MAX_RANK, strict=True)
    modules: list[Name] | None = Field(default=None, min_length=1, max_length=7)


class PlannedKnobs(BaseModel):
    """Settings of the engine to plan with; those left out are the running engine's, or automatic."""

    model_config = ConfigDict(extra="forbid")

    max_num_batched_tokens: int | None = Field(default=None, ge=1, le=MAX_TOKENS, strict=True)
    max_num_seqs: int | None = Field(default=None, ge=1, le=MAX_CONCURRENCY, strict=True)
    kv_cache_bytes: Bytes | None = None
    block_size: int | None = Field(default=None, ge=1, le=4096, strict=True)
    adapter_pool_bytes: Bytes | None = None
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1, allow_inf_nan=False, strict=True)


class PlanQuestion(BaseModel):
    """A workload: either so many requests at once, or so many a second."""

    model_config = ConfigDict(extra="forbid")

    model: Name | None = Field(default=None, description="a shipped model's name; null = what the engine runs")
    device: Name | None = Field(default=None, description="a shipped device's name; null = the engine's")
    prompt_tokens: Tokens = Field(description="mean length of a prompt")
    output_tokens: Tokens = Field(description="mean length of an answer")
    concurrency: int | None = Field(default=None, ge=1, le=MAX_CONCURRENCY, strict=True)
    requests_per_s: float | None = Field(default=None, ge=1e-6, le=1e6, allow_inf_nan=False, strict=True)
    adapters: PlannedAdapters | None = None
    knobs: PlannedKnobs = PlannedKnobs()
    live: bool = Field(default=False, strict=True, description="calibrate by steps that the running engine has made")


class MemoryRow(BaseModel):
    name: str
    bytes: int


class SizingStep(BaseModel):
    """One step of the sizing order: KV a request, concurrency, seats, tokens a step."""

    title: str
    text: str
    value: str


class ConcurrencyCell(BaseModel):
    bytes: int = Field(description="KV of so many requests of that context, in whole blocks")
    fits: bool


class ConcurrencyTable(BaseModel):
    """`cells[i][j]` is of `contexts[i]` tokens and `concurrencies[j]` requests."""

    contexts: list[int]
    concurrencies: list[int]
    cells: list[list[ConcurrencyCell]]


class CurvePoint(BaseModel):
    """Decoding in a batch: what an output token reads, d(b, L) = W/b + L·k, and the time that takes."""

    batch: int
    read_bytes_per_token: float
    itl_s: float
    output_tokens_per_s: float
    fits: bool


class LoraLedgers(BaseModel):
    """Adapters and the contexts that only they can use, and which of the two fills the memory first."""

    adapter_bytes: int
    all_bytes: int
    private_kv_bytes: int = Field(description="one context of this workload for every adapter")
    bound_by: Literal["kv", "adapters"]
    resident: int = Field(description="adapters that the arena holds at once")


class Estimated(BaseModel):
    """`low` and `high` hold the error that was seen on steps kept out of the fit; null without a calibration."""

    value: float
    low: float | None
    high: float | None


class Estimate(BaseModel):
    """Means over the requests of a simulated run on one engine, with its share of the workload where `replicas` are
    more than one; by formulas where a note says so."""

    ttft_s: Estimated
    itl_s: Estimated
    output_tokens_per_s: Estimated
    total_s: Estimated = Field(description="from sending a request to its last token")


class RecommendedKnob(BaseModel):
    name: str
    setting: str = Field(description="the environment variable that sets it")
    value: int | float
    why: str


class Compared(BaseModel):
    """What the calibration says of the traffic that the engine has had, beside what was measured."""

    name: str
    predicted: float
    low: float
    high: float
    measured: float


class SeenRange(BaseModel):
    name: str
    low: float
    high: float


class Calibration(BaseModel):
    """What a live plan stands on; errors are relative, of steps kept out of the fit."""

    steps: int
    error_p50: float
    error_p90: float
    measured: list[Compared]
    ranges: list[SeenRange]


class CapacityPlan(BaseModel):
    basis: Literal["formulas", "live"]
    model: str
    device: str
    memory: list[MemoryRow] = Field(description="adds up to available_bytes")
    available_bytes: int
    request_kv_bytes: int = Field(description="KV of one request of this workload at its end, in whole blocks")
    pool_tokens: int
    theoretical_concurrency: float = Field(description="requests of this workload that the KV pool holds at once")
    steps: list[SizingStep]
    concurrency_table: ConcurrencyTable
    curve: list[CurvePoint]
    balanced_batch: float = Field(description="the batch at which an output token reads as much KV as weights")
    lora: LoraLedgers | None = None
    estimate: Estimate | None = None
    replicas: int | None = Field(default=None, description="engines that carry the whole load")
    knobs: list[RecommendedKnob]
    notes: list[str] = Field(description="what was assumed, and what could not be said")
    calibration: Calibration | None = None
