"""Models and adapters of random numbers, made on the device: what the GPU's benchmarks compute with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from lorikeet_adapters.manifest import GRAIN
from lorikeet_engine.config import EngineConfig
from lorikeet_engine.execution.placement import Placement, beside_the_host
from lorikeet_engine.execution.runner import ModelRunner
from lorikeet_engine.execution.streams.lanes import CudaLanes, HostLanes, Lane, Lanes
from lorikeet_engine.lora.arena import LoraArena
from lorikeet_engine.model_spec import ModelSpec
from lorikeet_engine.models.weights import LayerWeights, Weights
from lorikeet_engine.ops.cuda import CudaOps, PageMover
from lorikeet_engine.ops.interface import Ops, PackedLinear
from lorikeet_engine.simulation.shipped import load_model
from lorikeet_engine.sizing.memory_budget import plan_memory

LARGE = load_model("llama-3-8b")
# As many heads to a KV head, and everything else as small as kernels allow.
TOY = replace(
    LARGE,
    n_layers=2,
    hidden=64,
    intermediate=96,
    n_heads=4,
    n_kv_heads=1,
    head_dim=16,
    vocab=160,
    max_positions=512,
    eos_token_ids=(159,),
    rope_layers=(True, True),
    sliding_window=(0, 0),
)


def random_weights(
    spec: ModelSpec, ops: Ops, dtype: torch.dtype, device: str, *, made_on: str | None = None
) -> Weights:
    """Scaled so that activations stay near one; equal on two devices if made on the same and from the same seed."""

    def randn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=dtype, device=made_on or device).to(device)

    def linear(n_in: int, n_out: int) -> PackedLinear:
        return ops.pack_linear(weight=randn(n_out, n_in).mul_(n_in**-0.5), bias=None)

    def ones() -> torch.Tensor:
        return torch.ones(spec.hidden, dtype=dtype, device=device)

    heads, kv = spec.n_heads * spec.head_dim, 2 * spec.n_kv_heads * spec.head_dim
    layers = tuple(
        LayerWeights(
            attention_norm=ones(),
            qkv=linear(spec.hidden, heads + kv),
            q_norm=None,
            k_norm=None,
            o=linear(heads, spec.hidden),
            mlp_norm=ones(),
            gate_up=linear(spec.hidden, 2 * spec.intermediate),
            down=linear(spec.intermediate, spec.hidden),
        )
        for _ in range(spec.n_layers)
    )
    return Weights(randn(spec.vocab, spec.hidden), layers, ones(), linear(spec.hidden, spec.vocab))


@dataclass(frozen=True)
class Setting:
    """One model on one device, from which runners are made that differ in how they work with it."""

    spec: ModelSpec
    ops: Ops
    weights: Weights
    device: str

    def runner(self, placement: Placement, **knobs: int) -> ModelRunner:
        """`knobs`: settings of `EngineConfig`."""
        config = EngineConfig(
            model_dir=Path(),
            model_name="bench",
            store_url=".",
            endpoint="ipc://unused",
            device=self.device,
            dtype=str(self.weights.dtype).removeprefix("torch."),
            **knobs,
        )
        plenty = 1 << 40
        budget = plan_memory(
            config,
            self.spec,
            itemsize=self.weights.dtype.itemsize,
            weights_bytes=self.weights.nbytes,
            available_bytes=plenty,
            host_bytes=plenty if self.device == "cuda" else None,
        )
        return ModelRunner(
            config=config,
            spec=self.spec,
            ops=self.ops,
            weights=self.weights,
            budget=budget,
            placement=placement,
        )


def gpu_setting(spec: ModelSpec, dtype: torch.dtype, device: str, *, max_tokens: int, max_rank: int) -> Setting:
    ops = CudaOps(device=device, max_tokens=max_tokens, max_rank=max_rank)
    return Setting(spec, ops, random_weights(spec, ops, dtype, device), device)


class OneLane(CudaLanes):
    """All work on the compute stream: what the other lanes gain is measured against it."""

    def __init__(self) -> None:
        super().__init__()
        self._streams = dict.fromkeys(Lane, torch.cuda.current_stream())


def lanes(*, one: bool = False) -> Lanes:
    if not torch.cuda.is_available():
        return HostLanes()
    return OneLane() if one else CudaLanes()


def placed(device: str, *, recorded: bool = True, one_lane: bool = False) -> Placement:
    """As the engine places a runner on a GPU, or with a part of that left out."""
    placement = beside_the_host(device, lanes(one=one_lane), PageMover)
    return placement if recorded else replace(placement, recorded_rows=lambda _: ())


def fill_arena(arena: LoraArena, extent: torch.Tensor, n: int) -> list[int]:
    """Lay `n` copies of an adapter side by side, each its own bytes; returns their bases."""
    n_grains = extent.numel() // GRAIN
    bases = [index * n_grains for index in range(n)]
    for base in bases:
        arena.write(base, extent)
    return bases
