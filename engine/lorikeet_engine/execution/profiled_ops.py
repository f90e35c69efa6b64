"""Any backend with every verb timed under the name it has in the model, for an engine that is being profiled.

A recorded step is one call and shows no ops, so a profiled engine computes every step op by op. This is the only place
that asks what kind of clock a device needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple, Protocol

import torch

from lorikeet_engine.execution.device_op_timer import DeviceEvent, DeviceOpTimer
from lorikeet_engine.models.weights import Weights
from lorikeet_engine.ops.interface import (
    DOWN,
    GATE_UP,
    OUTPUT,
    QKV,
    AttentionBatch,
    LoraBatch,
    LoraRun,
    Ops,
    PackedLinear,
    Recording,
    SiteShape,
)
from lorikeet_engine.profiling.step_timeline import StepTimeline

SITE_NAMES: Final = {QKV: "qkv", OUTPUT: "o", GATE_UP: "gate_up", DOWN: "down"}


def profiled(ops: Ops, weights: Weights, timeline: StepTimeline) -> Ops:
    """`ops` with its times in `timeline`."""
    if not weights.embedding.is_cuda:
        return ProfiledOps(ops, weights, timeline)
    return ProfiledOps(ops, weights, DeviceOpTimer(timeline, _cuda_event))


class OpTimer(Protocol):
    """Where a timed op goes: `StepTimeline` itself for ops that the host computes, `DeviceOpTimer` for others."""

    def op(self, name: str, layer: int | None) -> AbstractContextManager[None]: ...


class WeightName(NamedTuple):
    """What a weight is called, and in which layer it is, if in one."""

    name: str
    layer: int | None


class ProfiledOps:
    """`ops` with a stopwatch. Ops without weights belong to the layer of the last one that had some."""

    def __init__(self, ops: Ops, weights: Weights, timer: OpTimer) -> None:
        self._ops = ops
        self._timer = timer
        self._names = {id(weight): name for weight, name in _weights_of(weights)}  # they live as long as the engine
        self._layer: int | None = None

    def pack_linear(self, *, weight: torch.Tensor, bias: torch.Tensor | None) -> PackedLinear:
        return self._ops.pack_linear(weight=weight, bias=bias)

    def unpack_linear(self, *, linear: PackedLinear, first: int, end: int, n_rows: int) -> Iterator[torch.Tensor]:
        return self._ops.unpack_linear(linear=linear, first=first, end=end, n_rows=n_rows)

    def linear(self, *, x: torch.Tensor, linear: PackedLinear) -> torch.Tensor:
        with self._weighted(linear, "linear"):
            return self._ops.linear(x=x, linear=linear)

    def gather_rows(self, *, table: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        with self._weighted(table, "sampled rows"):
            return self._ops.gather_rows(table=table, rows=rows)

    def rms_norm(self, *, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        with self._weighted(weight, "norm"):
            return self._ops.rms_norm(x=x, weight=weight, eps=eps)

    def add_rms_norm(
        self, *, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        with self._weighted(weight, "norm"):
            return self._ops.add_rms_norm(x=x, residual=residual, weight=weight, eps=eps)

    def silu_mul(self, *, gate_up: torch.Tensor) -> torch.Tensor:
        with self._timer.op("silu_mul", self._layer):
            return self._ops.silu_mul(gate_up=gate_up)

    def rotary_write_kv(
        self,
        *,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        rotary: tuple[torch.Tensor, torch.Tensor] | None,
        batch: AttentionBatch,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
    ) -> torch.Tensor:
        with self._timer.op("rotary_write_kv", self._layer):
            return self._ops.rotary_write_kv(
                q=q, k=k, v=v, rotary=rotary, batch=batch, k_cache=k_cache, v_cache=v_cache
            )

    def plan_attention(
        self, *, batch: AttentionBatch, window: int, n_kv_heads: int, block_size: int, dtype: torch.dtype
    ) -> Any:
        with self._timer.op("plan_attention", None):
            return self._ops.plan_attention(
                batch=batch, window=window, n_kv_heads=n_kv_heads, block_size=block_size, dtype=dtype
            )

    def attention(
        self, *, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, plan: Any, scale: float
    ) -> torch.Tensor:
        with self._timer.op("attention", self._layer):
            return self._ops.attention(q=q, k_cache=k_cache, v_cache=v_cache, plan=plan, scale=scale)

    def lora_code_size(self, n_tokens: int) -> int:
        return self._ops.lora_code_size(n_tokens)

    def encode_runs(self, runs: Sequence[LoraRun], n_tokens: int) -> Sequence[int]:
        return self._ops.encode_runs(runs, n_tokens)

    def add_lora(
        self,
        *,
        out: torch.Tensor,
        x: torch.Tensor,
        arena: torch.Tensor,
        batch: LoraBatch,
        layer: int,
        site: SiteShape,
        base_bias: torch.Tensor | None,
    ) -> None:
        with self._timer.op(f"lora {SITE_NAMES[tuple(module for module, _, _ in site.slices)]}", layer):
            self._ops.add_lora(out=out, x=x, arena=arena, batch=batch, layer=layer, site=site, base_bias=base_bias)

    def greedy(self, *, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with self._timer.op("greedy", None):
            return self._ops.greedy(logits=logits)

    def run(self, compute: Callable[[], torch.Tensor]) -> torch.Tensor:
        """One by one, so that each is seen."""
        return compute()

    def record(self, compute: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, Recording] | None:
        """Never, see above."""

    def _weighted(self, weight: object, otherwise: str) -> AbstractContextManager[None]:
        name, self._layer = self._names.get(id(weight), WeightName(otherwise, None))
        return self._timer.op(name, self._layer)


def _cuda_event() -> DeviceEvent:
    event: DeviceEvent = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    return event


def _weights_of(weights: Weights) -> Iterator[tuple[object, WeightName]]:
    yield weights.embedding, WeightName("embedding", None)
    for index, layer in enumerate(weights.layers):
        for name in ("attention_norm", "qkv", "q_norm", "k_norm", "o", "mlp_norm", "gate_up", "down"):
            if (weight := getattr(layer, name)) is not None:
                yield weight, WeightName(name, index)
    yield weights.final_norm, WeightName("final_norm", None)
    yield weights.head, WeightName("head", None)
