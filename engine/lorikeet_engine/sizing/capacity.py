"""What a divided memory carries: weights as they lie there, adapters in the arena, and engines for a load."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Literal

from lorikeet_adapters.manifest import GRAIN, BlockShape, extent_grains
from lorikeet_engine.cost import ModelCost
from lorikeet_engine.model_spec import ModelSpec

# A queue grows without bound as its server gets busy; at this share of the most that an engine can do it stays short.
BUSY_SHARE = 0.8


def weights_in_memory(spec: ModelSpec, *, itemsize: int = 2) -> int:
    """All of a model's weights; the output head lies apart from the embedding even when the two are tied."""
    cost = ModelCost.of(spec, itemsize=itemsize)
    q, kv = spec.n_heads * spec.head_dim, spec.n_kv_heads * spec.head_dim
    biases = spec.qkv_bias * (q + 2 * kv) + spec.o_bias * spec.hidden
    biases += spec.mlp_bias * (2 * spec.intermediate + spec.hidden)
    norms = 2 * spec.hidden + spec.qk_norm * 2 * spec.head_dim
    rest = spec.n_layers * (biases + norms) + spec.hidden + spec.vocab * spec.hidden
    return cost.weights_bytes + rest * itemsize


def arena_bytes(spec: ModelSpec, rank: int, *, modules: Collection[str], itemsize: int = 2) -> int:
    """What one adapter with `rank` on each of `modules` takes of the arena: head and blocks, in whole grains."""
    linears = spec.module_table("").linears
    blocks = [
        BlockShape(layer, module, rank, linears[module].in_features, linears[module].out_features)
        for layer in range(spec.n_layers)
        for module in modules
    ]
    return extent_grains(spec.n_layers, itemsize, blocks) * GRAIN * itemsize


def bound_of(kv_concurrency: float, *, adapters: int, resident: int) -> Literal["kv", "adapters"]:
    """Which ledger limits how many requests run, when every adapter has a context that only it can use.

    Requests on one adapter share it, so where all adapters are resident at once, only the KV pool limits.
    """
    return "kv" if resident >= adapters or kv_concurrency <= resident else "adapters"


def replicas_for(load: float, capacity: float, busy_share: float = BUSY_SHARE) -> int:
    """Engines that carry `load`, each at most at `busy_share` of the `capacity` that one has."""
    return max(1, math.ceil(load / (capacity * busy_share) - 1e-9))
