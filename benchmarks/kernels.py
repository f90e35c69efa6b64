"""The Triton kernels on Llama-3-8B's shapes: time, and part of the copy bandwidth and GEMM rate measured beside them.

    python benchmarks/kernels.py [--quick] [--json FILE]

Targets are those of the design for an H200 and hold for no other GPU. Without a GPU every kernel runs once, on toy
shapes and interpreted (`TRITON_INTERPRET=1`), and nothing is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from extents import random_extent
from figures import Figure, arguments, at_most, present
from gpu_models import LARGE, TOY, fill_arena
from gpu_timing import DEVICE, IS_GPU, Rates, guarded, measured_rates, n_copies, seconds_of

from lorikeet_adapters.modules import MODULES
from lorikeet_engine.lora.arena import LoraArena
from lorikeet_engine.lora_floor import lora_floor_seconds
from lorikeet_engine.model_spec import ModelSpec
from lorikeet_engine.ops.cuda import CudaOps, PageMover
from lorikeet_engine.ops.interface import DOWN, GATE_UP, OUTPUT, QKV, AttentionBatch, LoraBatch, LoraRun

SPEC: ModelSpec = LARGE if IS_GPU else TOY
DTYPE = torch.bfloat16
BLOCK = 16
MAX_TOKENS = 2048
MAX_RANK = 64
US, MS = 1e6, 1e3
SITES = (QKV, OUTPUT, GATE_UP, DOWN)
Q_AND_V = ("self_attn.q_proj", "self_attn.v_proj")


@dataclass(frozen=True)
class AttentionShape:
    """`new` query tokens behind the rest of `context`, in each of `rows`; targets in microseconds."""

    name: str
    rows: int
    context: int
    new: int
    target: float
    toy: tuple[int, int, int] = (2, 20, 1)

    @property
    def sizes(self) -> tuple[int, int, int]:
        return (self.rows, self.context, self.new) if IS_GPU else self.toy


ATTENTION = (
    AttentionShape("decode B=64, ctx 2048", 64, 2048, 1, 150),
    AttentionShape("decode B=64, ctx 1024", 64, 1024, 1, 80),
    AttentionShape("decode B=256, ctx 2048", 256, 2048, 1, 570),
    AttentionShape("decode B=1, ctx 8192", 1, 8192, 1, 18, (1, 300, 1)),
    AttentionShape("decode B=1, ctx 131072", 1, 131072, 1, 155),
    AttentionShape("extend, 2048 new at ctx 0", 1, 2048, 2048, 110, (1, 18, 18)),
    AttentionShape("extend, 2048 new at ctx 6144", 1, 8192, 2048, 690, (1, 40, 18)),
)


@dataclass(frozen=True)
class LoraShape:
    """`rows` tokens over `adapters` adapters of rank 16; targets in milliseconds of a step of all layers."""

    name: str
    rows: int
    adapters: int
    modules: tuple[str, ...]
    target: float

    @property
    def sizes(self) -> tuple[int, int]:
        return (self.rows, self.adapters) if IS_GPU else (min(self.rows, 6), min(self.adapters, 2))


LORA = (
    LoraShape("decode 64, 64 distinct, all-7", 64, 64, MODULES, 1.95),
    LoraShape("decode 64, 64 distinct, q,v", 64, 64, Q_AND_V, 0.55),
    LoraShape("decode 64, 8 distinct, all-7", 64, 8, MODULES, 0.70),
    LoraShape("decode 64, 1 adapter, all-7", 64, 1, MODULES, 0.55),
    LoraShape("prefill 2048, 1 adapter, all-7", 2048, 1, MODULES, 5.0),
    LoraShape("prefill 2048, 8 adapters, all-7", 2048, 8, MODULES, 5.0),
)
RANK = 16


def judged(name: str, value: float, unit: str, bound: float) -> Figure:
    return at_most(name, value, unit, bound) if IS_GPU else Figure(name, value, unit, f"<= {bound:g}")


def attention_figures(ops: CudaOps, rates: Rates, *, quick: bool) -> Iterator[Figure]:
    for shape in ATTENTION[:1] + ATTENTION[5:6] if quick and IS_GPU else ATTENTION:
        rows, context, new = shape.sizes
        kv_bytes = 2 * rows * context * SPEC.n_kv_heads * SPEC.head_dim * DTYPE.itemsize
        calls = [attention_call(ops, rows, context, new) for _ in range(min(8, n_copies(kv_bytes)))]
        seconds = seconds_of(calls, quick=quick)
        yield judged(f"attention, {shape.name}", seconds * US, "µs", shape.target)
        if new == 1:
            yield Figure(f"attention, {shape.name}: of copy bandwidth", kv_bytes / seconds / rates.copy, "")
        else:
            pairs = rows * new * (context - new + (new + 1) / 2)
            flops = 4 * pairs * SPEC.n_heads * SPEC.head_dim
            yield Figure(f"attention, {shape.name}: of GEMM rate", flops / seconds / rates.gemm, "")


def attention_call(ops: CudaOps, rows: int, context: int, new: int) -> Callable[[], object]:
    """Attention of one layer over pages of its own, blocks in a shuffled order."""
    per_row = -(-context // BLOCK)
    n_blocks = 1 + rows * per_row
    shape = (n_blocks, SPEC.n_kv_heads, BLOCK, SPEC.head_dim)
    k, v = (torch.randn(shape, dtype=DTYPE, device=DEVICE) for _ in range(2))
    q = torch.randn(rows * new, SPEC.n_heads, SPEC.head_dim, dtype=DTYPE, device=DEVICE)
    batch = batch_of(rows, context, new, (1 + torch.randperm(n_blocks - 1)).view(rows, per_row))
    plan = ops.plan_attention(batch=batch, window=0, n_kv_heads=shape[1], block_size=BLOCK, dtype=DTYPE)
    return partial(ops.attention, q=q, k_cache=k, v_cache=v, plan=plan, scale=SPEC.head_dim**-0.5)


def batch_of(rows: int, context: int, new: int, tables: torch.Tensor) -> AttentionBatch:
    positions = torch.arange(context - new, context).repeat(rows)
    return AttentionBatch(
        n_decode=rows if new == 1 else 0,
        query_starts=tuple(range(0, rows * new + 1, new)),
        context_lens=(context,) * rows,
        contexts=torch.full((rows,), context, device=DEVICE),
        block_tables=tables.to(DEVICE),
        positions=positions.to(DEVICE),
        slot_blocks=tables.repeat_interleave(new, 0).gather(1, positions[:, None] // BLOCK)[:, 0].to(DEVICE),
        slot_offsets=(positions % BLOCK).to(DEVICE),
    )


def lora_figures(ops: CudaOps, rates: Rates, *, quick: bool) -> Iterator[Figure]:
    """All sites of all layers, which is more than the cache holds even for one adapter."""
    table = SPEC.module_table("bench")
    for modules in (MODULES, Q_AND_V):
        shapes = [shape for shape in LORA if shape.modules == modules]
        extent = random_extent(table, RANK, modules, DTYPE)
        n_adapters = max(shape.sizes[1] for shape in shapes)
        arena = LoraArena(table=table, pool_bytes=n_adapters * extent.nbytes, dtype=DTYPE, device=DEVICE)
        bases = fill_arena(arena, extent, n_adapters)
        for shape in shapes[:1] if quick and IS_GPU else shapes:
            rows, n = shape.sizes
            seconds = seconds_of([partial(lora_step, lora_sites(ops, arena, rows, bases[:n]))], quick=quick)
            floor = lora_floor_seconds(
                SPEC, rates.profile(), n_rows=rows, n_adapters=n, rank=RANK, modules=modules, itemsize=DTYPE.itemsize
            )
            yield judged(f"LoRA, {shape.name}", seconds * MS, "ms", shape.target)
            yield Figure(f"LoRA, {shape.name}: floor over time", floor / seconds, "")


def lora_sites(ops: CudaOps, arena: LoraArena, rows: int, bases: Sequence[int]) -> list[Callable[[], object]]:
    """A call for every site of every layer; rows in even runs over the adapters."""
    per_adapter = rows // len(bases)
    runs = tuple(LoraRun(base, index * per_adapter, per_adapter, ()) for index, base in enumerate(bases))
    code = torch.tensor(list(ops.encode_runs(runs, rows)), device=DEVICE)
    calls: list[Callable[[], object]] = []
    for modules in SITES:
        site = arena.site(modules)
        n_out = sum(width for _, _, width in site.slices)
        x = torch.randn(rows, site.in_features, dtype=DTYPE, device=DEVICE)
        out = torch.zeros(rows, n_out, dtype=DTYPE, device=DEVICE)
        for layer in range(SPEC.n_layers):
            calls.append(
                partial(
                    ops.add_lora,
                    out=out,
                    x=x,
                    arena=arena.storage,
                    batch=LoraBatch(runs, code),
                    layer=layer,
                    site=site,
                    base_bias=None,
                )
            )
    return calls


def lora_step(calls: Sequence[Callable[[], object]]) -> None:
    for call in calls:
        call()


def dense_figures(ops: CudaOps, rates: Rates, *, quick: bool) -> Iterator[Figure]:
    """What else a layer launches: bytes over time, as a part of the copy bandwidth."""
    for rows in ((64,) if quick else (64, MAX_TOKENS)) if IS_GPU else (4,):
        hidden, wide = (torch.randn(rows, n, dtype=DTYPE, device=DEVICE) for n in (SPEC.hidden, 2 * SPEC.intermediate))
        weight = torch.ones(SPEC.hidden, dtype=DTYPE, device=DEVICE)
        n_heads = SPEC.n_heads + 2 * SPEC.n_kv_heads
        heads = torch.randn(rows, n_heads, SPEC.head_dim, dtype=DTYPE, device=DEVICE)
        logits = torch.randn(min(rows, 256), SPEC.vocab, dtype=DTYPE, device=DEVICE)
        cases: tuple[tuple[str, Callable[[], object], int], ...] = (
            (
                "add and norm",
                partial(ops.add_rms_norm, x=hidden, residual=hidden, weight=weight, eps=1e-5),
                4 * hidden.nbytes,
            ),
            ("gated activation", partial(ops.silu_mul, gate_up=wide), 3 * wide.nbytes // 2),
            ("rotary and KV write", rotary_call(ops, heads), 2 * heads.nbytes),
            ("greedy", partial(ops.greedy, logits=logits), logits.nbytes),
        )
        for name, call, n_bytes in cases:
            seconds = seconds_of([call], quick=quick)
            yield Figure(f"{name}, {rows} rows", seconds * US, "µs")
            yield Figure(f"{name}, {rows} rows: of copy bandwidth", n_bytes / seconds / rates.copy, "")


def rotary_call(ops: CudaOps, heads: torch.Tensor) -> Callable[[], object]:
    rows = heads.shape[0]
    q, k, v = torch.split(heads, [SPEC.n_heads, SPEC.n_kv_heads, SPEC.n_kv_heads], dim=1)
    tables = (1 + torch.arange(rows)).view(rows, 1)
    cache = torch.zeros(rows + 1, SPEC.n_kv_heads, BLOCK, SPEC.head_dim, dtype=DTYPE, device=DEVICE)
    angles = torch.randn(BLOCK, SPEC.head_dim // 2, device=DEVICE)
    return partial(
        ops.rotary_write_kv,
        q=q,
        k=k,
        v=v,
        rotary=(angles.cos(), angles.sin()),
        batch=batch_of(rows, 1, 1, tables),
        k_cache=cache,
        v_cache=torch.zeros_like(cache),
    )


def block_figures(rates: Rates, *, quick: bool) -> Iterator[Figure]:
    """A swap's gather of blocks out of all layers."""
    n_blocks, n_moved = (512, 16) if IS_GPU else (8, 3)
    shape = (n_blocks, SPEC.n_kv_heads, BLOCK, SPEC.head_dim)
    pages = [torch.randn(shape, dtype=DTYPE, device=DEVICE) for _ in range(2 * SPEC.n_layers)]
    mover = PageMover(pages)
    slab = torch.empty(n_moved, len(pages), pages[0][0].numel(), dtype=DTYPE, device=DEVICE)
    blocks = torch.randperm(n_blocks)[:n_moved].to(DEVICE)
    seconds = seconds_of([partial(mover.gather, blocks, slab)], quick=quick)
    yield Figure(f"gather of {n_moved} blocks", seconds * US, "µs")
    yield Figure(f"gather of {n_moved} blocks: of copy bandwidth", 2 * slab.nbytes / seconds / rates.copy, "")


@torch.inference_mode()
def measure(*, quick: bool) -> list[Figure]:
    """Every figure of this file."""
    rates = measured_rates(quick=quick)
    ops = CudaOps(device=DEVICE, max_tokens=MAX_TOKENS, max_rank=MAX_RANK)
    return [
        Figure("copy bandwidth", rates.copy / 1e12, "TB/s"),
        Figure("GEMM rate, bf16", rates.gemm / 1e12, "TFLOP/s"),
        *guarded("attention", attention_figures(ops, rates, quick=quick)),
        *guarded("LoRA", lora_figures(ops, rates, quick=quick)),
        *guarded("dense kernels", dense_figures(ops, rates, quick=quick)),
        *guarded("block copies", block_figures(rates, quick=quick)),
    ]


def main() -> None:
    options = arguments(__doc__.splitlines()[0]).parse_args()
    name = torch.cuda.get_device_name() if IS_GPU else "no GPU: interpreted, times mean nothing"
    present(f"Kernels on Llama-3-8B's shapes ({name})", measure(quick=options.quick), options.json)


if __name__ == "__main__":
    main()
