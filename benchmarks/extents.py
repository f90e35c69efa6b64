"""Adapters of random numbers, laid out as the arena holds them, for benchmarks on either device."""

from __future__ import annotations

import torch

from lorikeet_adapters.manifest import GRAIN, BlockShape, plan_extent
from lorikeet_adapters.modules import MODULES, ModuleTable


def random_extent(table: ModuleTable, rank: int, modules: tuple[str, ...], dtype: torch.dtype) -> torch.Tensor:
    """An adapter on these linears of every layer, in host memory, pinned where that means something."""
    blocks = [
        BlockShape(layer, name, rank, table.linears[name].in_features, table.linears[name].out_features)
        for layer in range(table.n_layers)
        for name in modules
    ]
    plan = plan_extent(table.n_layers, dtype.itemsize, blocks)
    numbers = torch.zeros(table.n_layers, len(MODULES), 2, dtype=torch.int32)
    for block, start in zip(blocks, plan.starts, strict=True):
        numbers[block.layer, MODULES.index(block.module)] = torch.tensor([start, rank])
    extent = torch.empty(plan.n_grains * GRAIN, dtype=dtype).normal_(std=0.01)
    extent[: plan.starts[0] * GRAIN] = 0
    extent.view(torch.int32)[: numbers.numel()] = numbers.flatten()
    return extent.pin_memory() if torch.cuda.is_available() else extent
