"""What the benchmarks would launch on a GPU, compiled ahead of time on a machine without one.

The launchers are called on the large model's shapes over tensors without memory, as in the tests; a kernel that does
not compile for the target stops it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType

import torch
from gpu_models import LARGE
from kernels import BLOCK, DTYPE, MAX_RANK, SITES

from lorikeet_engine.ops.cuda import PageShape, decode_config, lora_config, prefill_config
from lorikeet_engine.ops.interface import SiteShape
from lorikeet_engine.ops.lora_planes import MAX_LOW_TOKENS, planes_size
from lorikeet_engine.ops.triton import (
    activation,
    attention_decode,
    attention_prefill,
    block_copy,
    kv_write,
    lora_tiles,
    norm,
    sampling,
)
from tests.support.aot import Build, compile_all
from tests.support.launches import launches_of

TARGETS = ("sm_90",)  # the tests compile for more
Launch = tuple[str, ModuleType, Callable[[], object]]


def compile_everything() -> dict[str, int]:
    """How many kernels were compiled for each target."""
    counts = {}
    for target in TARGETS:
        builds: dict[str, Build] = {}
        for name, module, launch in launches():
            for index, found in enumerate(launches_of(module, launch)):
                build = found.build(f"{name}-{index}", target)
                builds.setdefault(repr((build.kernel, build.signature, build.constants)), build)
        counts[target] = len(compile_all(list(builds.values())))
    return counts


def launches() -> Iterator[Launch]:
    spec = LARGE
    group, width = spec.n_heads // spec.n_kv_heads, spec.head_dim
    shape = PageShape(width, group, BLOCK, DTYPE)
    pages = [empty(64, spec.n_kv_heads, BLOCK, width) for _ in range(2)]
    for rows in (1, 64):
        q, tables = empty(rows, spec.n_heads, width), integers(rows, 128)
        yield (
            f"decode-{rows}",
            attention_decode,
            lambda q=q, tables=tables, rows=rows: attention_decode.attend_decode(
                q=q,
                k_cache=pages[0],
                v_cache=pages[1],
                contexts=integers(rows),
                block_tables=tables,
                scale=0.1,
                out=q,
                config=decode_config(shape),
            ),
        )
        yield from lora_launches(rows)
    yield from lora_launches(2048)
    q = empty(2048, spec.n_heads, width)
    yield (
        "prefill",
        attention_prefill,
        lambda: attention_prefill.attend_prefill(
            q=q,
            k_cache=pages[0],
            v_cache=pages[1],
            block_tables=integers(1, 128),
            tiles=integers(64, 4),
            scale=0.1,
            out=q,
            config=prefill_config(shape, 0),
        ),
    )
    yield from dense_launches(64)


def dense_launches(rows: int) -> Iterator[Launch]:
    spec = LARGE
    x, weight = empty(rows, spec.hidden), empty(spec.hidden)
    heads = empty(rows, spec.n_heads + 2 * spec.n_kv_heads, spec.head_dim)
    q, k, v = torch.split(heads, [spec.n_heads, spec.n_kv_heads, spec.n_kv_heads], dim=1)
    pages = [empty(64, spec.n_kv_heads, BLOCK, spec.head_dim) for _ in range(2)]
    angles = torch.empty(4096, spec.head_dim // 2, device="meta")
    yield "norm", norm, lambda: norm.rms_norm(x=x, weight=weight, eps=1e-5)
    yield "add-norm", norm, lambda: norm.add_rms_norm(x=x, residual=x, weight=weight, eps=1e-5)
    yield "activation", activation, lambda: activation.silu_mul(gate_up=empty(rows, 2 * spec.intermediate))
    yield "gather", sampling, lambda: sampling.gather_rows(table=x, rows=integers(rows))
    yield "greedy", sampling, lambda: sampling.greedy(logits=empty(rows, spec.vocab))
    yield (
        "rotary",
        kv_write,
        lambda: kv_write.rotary_write_kv(
            q=q,
            k=k,
            v=v,
            rotary=(angles, angles),
            positions=integers(rows),
            slot_blocks=integers(rows),
            slot_offsets=integers(rows),
            k_cache=pages[0],
            v_cache=pages[1],
        ),
    )
    slab = empty(16, 2 * spec.n_layers, pages[0][0].numel())
    pointers, blocks = integers(2 * spec.n_layers), integers(16)
    yield "gather-blocks", block_copy, lambda: block_copy.gather_blocks(pointers=pointers, blocks=blocks, slab=slab)
    yield "scatter-blocks", block_copy, lambda: block_copy.scatter_blocks(pointers=pointers, blocks=blocks, slab=slab)


def lora_launches(rows: int) -> Iterator[Launch]:
    table = LARGE.module_table("compiled")
    names = list(table.linears)
    planes = torch.empty(planes_size(rows, MAX_RANK), device="meta")
    for modules in SITES:
        widths = [table.linears[names[module]] for module in modules]
        site = SiteShape(
            widths[0].in_features,
            tuple(
                (module, sum(w.out_features for w in widths[:index]), widths[index].out_features)
                for index, module in enumerate(modules)
            ),
        )
        out = empty(rows, sum(width.out_features for width in widths))
        yield (
            f"lora-{rows}-{modules[0]}",
            lora_tiles,
            lambda site=site, out=out: lora_tiles.add_lora(
                out=out,
                x=empty(rows, site.in_features),
                arena=empty(1 << 20),
                code=integers(lora_tiles.code_size(rows)),
                planes=planes,
                layer=3,
                site=site,
                base_bias=None,
                max_rank=MAX_RANK,
                processors=132,
                config=lora_config(rows <= MAX_LOW_TOKENS, site.in_features, len(site.slices), DTYPE),
            ),
        )


def empty(*shape: int) -> torch.Tensor:
    return torch.empty(*shape, dtype=DTYPE, device="meta")


def integers(*shape: int) -> torch.Tensor:
    return torch.empty(*shape, dtype=torch.int64, device="meta")
