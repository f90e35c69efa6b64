"""The adapter that every other one is put beside: random, of another rank and on other modules, and always the same."""

from __future__ import annotations

from typing import Final

import torch

from lorikeet_adapters.manifest import GRAIN, BlockShape, head_grains, plan_extent
from lorikeet_adapters.modules import MODULES, ModuleTable

SEED: Final = 5
RANKS: Final = (5, 3, 2, 1)
TOUCHED: Final = ("self_attn.k_proj", "self_attn.o_proj", "mlp.up_proj")
STRENGTH: Final = 0.1  # of its product beside the input


def neighbour_rank(rank: int, max_rank: int) -> int:
    """Its rank beside an adapter of `rank`, another one if the engine's maximum leaves a choice."""
    allowed = [candidate for candidate in RANKS if candidate <= max_rank]
    return next((candidate for candidate in allowed if candidate != rank), allowed[-1])


def neighbour_extent(table: ModuleTable, rank: int) -> torch.Tensor:
    """Packed for the arena, float32."""
    generator = torch.Generator().manual_seed(SEED)
    blocks = [
        BlockShape(layer, module, rank, table.linears[module].in_features, table.linears[module].out_features)
        for layer in range(table.n_layers)
        for module in TOUCHED
    ]
    plan = plan_extent(table.n_layers, torch.float32.itemsize, blocks)
    extent = torch.zeros(plan.n_grains * GRAIN)
    head = torch.zeros(table.n_layers, len(MODULES), 2, dtype=torch.int32)
    for block, start in zip(blocks, plan.starts, strict=True):
        head[block.layer, MODULES.index(block.module)] = torch.tensor([start, rank], dtype=torch.int32)
        begin, middle = start * GRAIN, start * GRAIN + rank * block.in_features
        extent[begin:middle].normal_(std=block.in_features**-0.5, generator=generator)
        extent[middle : middle + rank * block.out_features].normal_(std=STRENGTH, generator=generator)
    head_end = head_grains(table.n_layers, torch.float32.itemsize) * GRAIN
    extent[:head_end].view(torch.int32)[: head.numel()] = head.flatten()
    return extent
