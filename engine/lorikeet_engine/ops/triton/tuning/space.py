"""What may be tried for each kernel on a model's shapes, and how a try is launched.

A choice that decides how sums are cut is one for all batch sizes, since a row's result must not depend on its
companions: it is the one with the least time over all of a task's loads together. A LoRA product's `split` is left as
its rule has it for the same reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import torch

from lorikeet_adapters.manifest import GRAIN, BlockShape, plan_extent
from lorikeet_adapters.modules import MODULES, ModuleTable
from lorikeet_engine.lora_floor import LORA_SITES
from lorikeet_engine.ops.interface import LoraRun, SiteShape
from lorikeet_engine.ops.lora_planes import LOW, planes_size, tile_height
from lorikeet_engine.ops.triton import attention_decode, attention_prefill, lora_tiles
from lorikeet_engine.ops.triton.tuning.table import Key
from lorikeet_engine.ops.triton.tuning.timing import Call

RANK, MAX_RANK = 16, 64
TUNED_LAYERS = 8  # of adapters: enough that the cache does not hold them


@dataclass(frozen=True, slots=True)
class HeadShape:
    """A model's attention, and the number format."""

    n_heads: int
    n_kv_heads: int
    width: int
    block: int
    dtype: torch.dtype

    @property
    def key(self) -> dict[str, int | str]:
        name = str(self.dtype).removeprefix("torch.")
        return {"D": self.width, "G": self.n_heads // self.n_kv_heads, "block": self.block, "dtype": name}


@dataclass(frozen=True, slots=True)
class Load:
    """Rows of `context` tokens, the last `new` of them computed now."""

    rows: int
    context: int
    new: int = 1


@dataclass(frozen=True, slots=True)
class Task:
    """One choice to make: the configurations, the rule's own first, and the calls of each that are timed."""

    kernel: str
    key: Key
    configs: Sequence[dict[str, int]]
    calls: Callable[[dict[str, int]], Sequence[Call]]


@dataclass(frozen=True, slots=True)
class Effort:
    """How large the loads are; small ones are for trying the command out."""

    decode: Sequence[Load]
    prefill: Sequence[Load]
    lora_rows: Sequence[int]
    most_configs: int = 1 << 30


FULL = Effort(
    decode=(Load(1, 8192), Load(8, 2048), Load(64, 1024), Load(64, 4096), Load(256, 1024)),
    prefill=(Load(1, 2048, 2048), Load(1, 8192, 2048), Load(4, 512, 512)),
    lora_rows=(64, 2048),
)


def tasks(shape: HeadShape, table: ModuleTable, effort: Effort, device: str) -> Iterator[Task]:
    """Every choice for one model."""
    yield _decode_task(shape, effort, device)
    yield _prefill_task(shape, effort, device)
    for rows in effort.lora_rows:
        for site in LORA_SITES:
            yield _lora_task(table, site, rows, shape.dtype, effort, device)


def _candidates(default: Any, effort: Effort, **values: Sequence[int]) -> list[dict[str, int]]:
    own = {name: getattr(default, name) for name in values}
    tried = [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]
    return [own, *(config for config in tried if config != own)][: effort.most_configs]


def _decode_task(shape: HeadShape, effort: Effort, device: str) -> Task:
    group = shape.n_heads // shape.n_kv_heads
    default = attention_decode.default_config(width=shape.width, group=group, dtype=shape.dtype)
    configs = _candidates(default, effort, block_n=(32, 64, 128), num_warps=(2, 4, 8), num_stages=(2, 3, 4))
    inputs = [(_pages(shape, load, device), load) for load in effort.decode]

    def calls(config: dict[str, int]) -> Sequence[Call]:
        chosen = replace(default, **config)
        return [
            partial(
                attention_decode.attend_decode,
                q=pages.q,
                k_cache=pages.k,
                v_cache=pages.v,
                contexts=torch.full((load.rows,), load.context, device=device),
                block_tables=pages.tables,
                scale=shape.width**-0.5,
                out=torch.empty_like(pages.q),
                config=chosen,
            )
            for pages, load in inputs
        ]

    return Task("attention_decode", shape.key, configs, calls)


def _prefill_task(shape: HeadShape, effort: Effort, device: str) -> Task:
    group = shape.n_heads // shape.n_kv_heads
    default = attention_prefill.default_config(width=shape.width, dtype=shape.dtype)
    configs = _candidates(
        default, effort, block_m=(64, 128), block_n=(32, 64, 128), num_warps=(4, 8), num_stages=(2, 3)
    )
    inputs = [(_pages(shape, load, device), load) for load in effort.prefill]

    def calls(config: dict[str, int]) -> Sequence[Call]:
        chosen = replace(default, **config)
        made = []
        for pages, load in inputs:
            tiles = attention_prefill.prefill_tiles(
                query_starts=range(0, load.rows * load.new + 1, load.new),
                context_lens=[load.context] * load.rows,
                rows=range(load.rows),
                queries_per_tile=chosen.queries_per_tile(group),
            )
            made.append(
                partial(
                    attention_prefill.attend_prefill,
                    q=pages.q,
                    k_cache=pages.k,
                    v_cache=pages.v,
                    block_tables=pages.tables,
                    tiles=torch.tensor(tiles, device=device),
                    scale=shape.width**-0.5,
                    out=torch.empty_like(pages.q),
                    config=chosen,
                )
            )
        return made

    return Task("attention_prefill", {**shape.key, "windowed": 0}, configs, calls)


@dataclass(frozen=True, slots=True)
class _Pages:
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    tables: torch.Tensor


def _pages(shape: HeadShape, load: Load, device: str) -> _Pages:
    per_row = -(-load.context // shape.block)
    n_blocks = 1 + load.rows * per_row
    size = (n_blocks, shape.n_kv_heads, shape.block, shape.width)
    k, v = (torch.randn(size, dtype=shape.dtype, device=device) for _ in range(2))
    q = torch.randn(load.rows * load.new, shape.n_heads, shape.width, dtype=shape.dtype, device=device)
    return _Pages(q, k, v, (1 + torch.randperm(n_blocks - 1)).view(load.rows, per_row).to(device))


def _lora_task(
    table: ModuleTable, site: Sequence[str], rows: int, dtype: torch.dtype, effort: Effort, device: str
) -> Task:
    """Every row has an adapter of its own in a small step, and one has all rows of a large one."""
    shape = _site_shape(table, site)
    default = lora_tiles.default_config(n_tokens=rows, in_features=shape.in_features, dtype=dtype)
    configs = [
        *_candidates(default, effort, shrink_inputs=(64, 128, 256), shrink_stages=(2, 3, 4), shrink_programs=(2, 4, 8)),
        *_candidates(
            default,
            effort,
            row_columns=(256, 512, 1024),
            tile_columns=(64, 128, 256),
            expand_warps=(4, 8),
            expand_programs=(2, 4, 8),
        )[1:],
    ]
    n_adapters = rows if tile_height(rows) == LOW else 1
    arena, runs = _arena(table, site, rows, n_adapters, dtype, device)
    code = torch.tensor(list(lora_tiles.encode(runs, rows)), device=device)
    x = torch.randn(rows, shape.in_features, dtype=dtype, device=device)
    out = torch.zeros(rows, sum(width for _, _, width in shape.slices), dtype=dtype, device=device)
    planes = torch.empty(planes_size(rows, MAX_RANK), device=device)
    processors = torch.cuda.get_device_properties(0).multi_processor_count if device == "cuda" else 1

    def calls(config: dict[str, int]) -> Sequence[Call]:
        return [
            partial(
                lora_tiles.add_lora,
                out=out,
                x=x,
                arena=arena,
                code=code,
                planes=planes,
                layer=layer,
                site=shape,
                base_bias=None,
                max_rank=MAX_RANK,
                processors=processors,
                config=replace(default, **config),
            )
            for layer in range(min(TUNED_LAYERS, table.n_layers))
        ]

    name = str(dtype).removeprefix("torch.")
    key: dict[str, int | str] = {
        "rows": tile_height(rows),
        "in": shape.in_features,
        "slices": len(site),
        "dtype": name,
    }
    return Task("lora", key, configs, calls)


def _site_shape(table: ModuleTable, site: Sequence[str]) -> SiteShape:
    slices, column = [], 0
    for name in site:
        width = table.linears[name].out_features
        slices.append((MODULES.index(name), column, width))
        column += width
    return SiteShape(table.linears[site[0]].in_features, tuple(slices))


def _arena(
    table: ModuleTable, site: Sequence[str], rows: int, n_adapters: int, dtype: torch.dtype, device: str
) -> tuple[torch.Tensor, list[LoraRun]]:
    """Adapters of random numbers on one site, side by side, and even runs over them."""
    n_layers = min(TUNED_LAYERS, table.n_layers)
    linears = {name: table.linears[name] for name in site}
    blocks = [
        BlockShape(layer, name, RANK, linear.in_features, linear.out_features)
        for layer in range(n_layers)
        for name, linear in linears.items()
    ]
    plan = plan_extent(n_layers, dtype.itemsize, blocks)
    head = torch.zeros(n_layers, len(MODULES), 2, dtype=torch.int32)
    for block, start in zip(blocks, plan.starts, strict=True):
        head[block.layer, MODULES.index(block.module)] = torch.tensor([start, RANK])
    arena = torch.randn(n_adapters * plan.n_grains * GRAIN, dtype=dtype, device=device).mul_(0.01)
    for index in range(n_adapters):
        first = index * plan.n_grains * GRAIN
        arena[first : first + plan.starts[0] * GRAIN].view(torch.int32)[: head.numel()] = head.flatten().to(device)
    per_adapter = rows // n_adapters
    return arena, [LoraRun(index * plan.n_grains, index * per_adapter, per_adapter, ()) for index in range(n_adapters)]
