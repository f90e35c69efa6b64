"""The engine's page as the API shows it: what it was started with, and how both of its machines do."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

EngineState = Literal["ready", "starting", "unavailable"]
Kind = Literal["prefill", "decode", "mixed", "copy"]
Measure = Literal["queue", "adapter_wait", "prefill", "ttft", "itl", "tpot", "e2e"]


class Knob(BaseModel):
    name: str
    setting: str = Field(description="the environment variable that sets it")
    value: bool | int | float | str
    is_automatic: bool | None = Field(description="whether the engine chose the value; null where this is not known")


class MemoryRow(BaseModel):
    name: str
    bytes: int


class Design(BaseModel):
    """What the engine was started with; the rows of `memory` add up to `available_bytes`."""

    knobs: list[Knob]
    memory: list[MemoryRow]
    available_bytes: int
    n_blocks: int
    block_size: int
    block_bytes: int
    max_model_len: int
    max_num_seqs: int
    theoretical_concurrency: float = Field(description="requests of max_model_len tokens that the KV pool holds")
    suggested_max_num_seqs: int = Field(description="65 % of that, at least one")


class Phase(BaseModel):
    """Steps of one kind. Rates are of the time that these steps took, never averaged with another kind's."""

    kind: Kind
    steps: int
    seconds: float
    share: float = Field(description="of the window's time")
    tokens: int = Field(description="computed by these steps")
    flops_per_s: float
    read_bytes_per_s: float
    mfu: float
    mbu: float
    intensity: float = Field(description="FLOPs for each byte read; intensity / ridge = mfu / mbu")


class Latency(BaseModel):
    """Seconds. Quantiles are interpolated within a histogram's bins, so they are right to a bin's width."""

    measure: Measure
    kind: Literal["base", "adapter", "all"]
    count: int
    mean: float
    p50: float
    p90: float
    p99: float


class Moment(BaseModel):
    """One sample's worth of the timeline; rates are those since the sample before."""

    at: int = Field(description="unix seconds")
    tokens_per_s: float
    mfu: float
    mbu: float
    kv_used_share: float
    running: int
    waiting: int


class Performance(BaseModel):
    """Figures of one window; `mfu` and `hfu` are of its whole time, idle time included."""

    window_s: float
    phases: list[Phase]
    ridge: float
    peak_flops: float
    peak_bandwidth: float
    device: str
    latency: list[Latency]
    tokens_per_step: float
    read_bytes_per_token: float | None = Field(description="of decode steps, for each token that they made")
    interference: float | None = Field(
        description="mean time of a prompt over what it would take alone, by a model fitted to the window's steps"
    )
    kv_peak_bytes: int
    mfu: float = Field(description="what the model needed")
    hfu: float = Field(description="with what was computed again after preemptions")
    timeline: list[Moment]


class EngineReport(BaseModel):
    """`design` is null while no engine answers, `performance` until two samples have been taken."""

    state: EngineState
    model: str
    device: str | None
    dtype: str | None
    design: Design | None
    performance: Performance | None
