"""A small model with its work spread over the device's streams, against the same model computed at once on the host.

Adapters arrive, are overwritten and moved, blocks are swapped out and back and forked, between steps that use them:
a fence that is missing on a real device shows as other tokens. Without a GPU the lanes are the host's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from extents import random_extent
from gpu_correctness import Check, collect
from gpu_models import TOY, Setting, placed, random_weights
from gpu_timing import DEVICE, IS_GPU

from lorikeet_adapters.manifest import GRAIN
from lorikeet_adapters.modules import MODULES
from lorikeet_engine.execution.placement import ON_HOST
from lorikeet_engine.execution.runner import ModelRunner
from lorikeet_engine.ops.cpu import CpuOps
from lorikeet_engine.ops.cuda import CudaOps
from lorikeet_engine.ops.interface import Ops
from tests.support.lane_scenarios import with_arrivals_and_moves, with_swaps

N_REPEATS = 5 if IS_GPU else 1
DTYPE = torch.float32
N_BLOCKS, N_SLOTS, BLOCK = 64, 8, 8


@dataclass(frozen=True)
class Image:
    extent: torch.Tensor

    @property
    def n_grains(self) -> int:
        return self.extent.numel() // GRAIN


def check_streams() -> Check:
    return collect("streams, tokens that differ", differences())


def differences() -> Iterator[tuple[str, float]]:
    torch.manual_seed(2)
    images = [Image(random_extent(TOY.module_table("toy"), 8, MODULES, DTYPE)) for _ in range(2)]
    scenarios: dict[str, Callable[[ModelRunner], list[list[int]]]] = {
        "arrivals": lambda runner: with_arrivals_and_moves(runner, images),
        "swaps": with_swaps,
    }
    for name, scenario in scenarios.items():
        expected = scenario(on_host())
        for repeat in range(N_REPEATS):
            found = scenario(on_device())
            yield f"{name} {repeat}", 0.0 if found == expected else float("inf")


def on_host() -> ModelRunner:
    ops = CpuOps()
    return _runner(ops, "cpu", on_its_device=False)


def on_device() -> ModelRunner:
    ops = CudaOps(device=DEVICE, max_tokens=256, max_rank=64)
    return _runner(ops, DEVICE, on_its_device=True)


def _runner(ops: Ops, device: str, *, on_its_device: bool) -> ModelRunner:
    torch.manual_seed(1)
    setting = Setting(TOY, ops, random_weights(TOY, ops, DTYPE, device, made_on="cpu"), device)
    block_bytes = 2 * TOY.n_layers * TOY.n_kv_heads * TOY.head_dim * BLOCK * DTYPE.itemsize
    return setting.runner(
        placed(device) if on_its_device else ON_HOST,
        max_num_seqs=8,
        max_num_batched_tokens=64,
        max_model_len=256,
        block_size=BLOCK,
        kv_cache_bytes=N_BLOCKS * block_bytes,
        swap_space=N_SLOTS * block_bytes,
        adapter_pool_bytes=2 << 20,
    )
