"""`Ops` on a GPU: Triton kernels for what adapters, pages and rows make special, cuBLAS for the linears.

Also runs on CPU tensors where Triton interprets (`TRITON_INTERPRET=1`), for tests. What attention gives a decode row is
the same bits whatever runs beside it; linears and adapters' sums are cut by how many rows there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch.nn import functional as F

from lorikeet_engine.ops.interface import AttentionBatch, LoraBatch, LoraRun, PackedLinear, Recording, SiteShape
from lorikeet_engine.ops.lora_planes import MAX_LOW_TOKENS, planes_size, tile_height
from lorikeet_engine.ops.triton import activation, block_copy, kv_write, lora_tiles, norm, sampling
from lorikeet_engine.ops.triton.attention_decode import DecodeConfig, attend_decode
from lorikeet_engine.ops.triton.attention_decode import default_config as default_decode
from lorikeet_engine.ops.triton.attention_prefill import PrefillConfig, attend_prefill, prefill_tiles
from lorikeet_engine.ops.triton.attention_prefill import default_config as default_prefill
from lorikeet_engine.ops.triton.tuning.table import config_for


@dataclass(slots=True)
class AttentionPlan:
    """A step's rows; `tiles` is what its first layer with this window worked out for the others."""

    batch: AttentionBatch
    window: int
    tiles: torch.Tensor | None = None


class CudaRecording:
    """A captured step; it reads and writes the tensors that it was captured with."""

    def __init__(self, graph: torch.cuda.CUDAGraph) -> None:
        self._graph = graph

    def replay(self) -> None:
        self._graph.replay()


class PageMover:
    """Whole KV blocks between page tensors and a slab, all tensors in one launch (`execution.kv_cache.BlockMover`)."""

    def __init__(self, pages: Sequence[torch.Tensor]) -> None:
        self._pages = tuple(pages)  # the addresses are theirs
        self._pointers = block_copy.page_pointers(self._pages)

    def gather(self, blocks: torch.Tensor, slab: torch.Tensor) -> None:
        block_copy.gather_blocks(pointers=self._pointers, blocks=blocks, slab=slab)

    def scatter(self, slab: torch.Tensor, blocks: torch.Tensor) -> None:
        block_copy.scatter_blocks(slab=slab, blocks=blocks, pointers=self._pointers)


class CudaOps:
    """The serving backend where there is a GPU, on its current device and stream, for steps of up to `max_tokens`
    tokens and adapters of up to `max_rank`."""

    def __init__(self, *, device: torch.device | str, max_tokens: int, max_rank: int) -> None:
        self._device = torch.device(device)
        self._max_rank = max_rank
        n_planes = planes_size(max_tokens, max_rank)
        self._planes = torch.empty(n_planes, dtype=torch.float32, device=self._device)
        is_gpu = self._device.type != "cpu"
        self._processors = torch.cuda.get_device_properties(self._device).multi_processor_count if is_gpu else 1
        self._stream: Any = None  # that recordings are made on
        self._pool: Any = None  # memory that all recordings share: they never run at once
        self._results: dict[tuple[int, torch.dtype], torch.Tensor] = {}  # where they leave what they computed

    def pack_linear(self, *, weight: torch.Tensor, bias: torch.Tensor | None) -> PackedLinear:
        out_features, in_features = weight.shape
        on_device = weight.to(self._device).contiguous()
        return PackedLinear(on_device, None if bias is None else bias.to(self._device), in_features, out_features)

    def unpack_linear(self, *, linear: PackedLinear, first: int, end: int, n_rows: int) -> Iterator[torch.Tensor]:
        yield from torch.split(linear.weight[first:end], n_rows)

    def linear(self, *, x: torch.Tensor, linear: PackedLinear) -> torch.Tensor:
        return F.linear(x, linear.weight, linear.bias)

    def gather_rows(self, *, table: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return sampling.gather_rows(table=table, rows=rows)

    def rms_norm(self, *, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        return norm.rms_norm(x=x, weight=weight, eps=eps)

    def add_rms_norm(
        self, *, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return norm.add_rms_norm(x=x, residual=residual, weight=weight, eps=eps)

    def silu_mul(self, *, gate_up: torch.Tensor) -> torch.Tensor:
        return activation.silu_mul(gate_up=gate_up)

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
        return kv_write.rotary_write_kv(
            q=q,
            k=k,
            v=v,
            rotary=rotary,
            positions=batch.positions,
            slot_blocks=batch.slot_blocks,
            slot_offsets=batch.slot_offsets,
            k_cache=k_cache,
            v_cache=v_cache,
        )

    def plan_attention(
        self, *, batch: AttentionBatch, window: int, n_kv_heads: int, block_size: int, dtype: torch.dtype
    ) -> AttentionPlan:
        del n_kv_heads, block_size, dtype  # the pages say so themselves
        return AttentionPlan(batch, window)

    def attention(
        self, *, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, plan: AttentionPlan, scale: float
    ) -> torch.Tensor:
        batch, window = plan.batch, plan.window
        shape = PageShape(q.shape[2], q.shape[1] // k_cache.shape[1], k_cache.shape[2], k_cache.dtype)
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        if n_rows := batch.n_decode:
            attend_decode(
                q=q[:n_rows],
                k_cache=k_cache,
                v_cache=v_cache,
                contexts=batch.contexts[:n_rows],
                block_tables=batch.block_tables[:n_rows],
                scale=scale,
                out=out[:n_rows],
                window=window,
                config=decode_config(shape),
            )
        if batch.n_decode < batch.n_rows:
            config = prefill_config(shape, window)
            if plan.tiles is None:
                plan.tiles = self._upload(_tiles(batch, config.queries_per_tile(shape.group)))
            attend_prefill(
                q=q,
                k_cache=k_cache,
                v_cache=v_cache,
                block_tables=batch.block_tables,
                tiles=plan.tiles,
                scale=scale,
                out=out,
                window=window,
                config=config,
            )
        return out.flatten(1)

    def _upload(self, numbers: Sequence[Sequence[int]]) -> torch.Tensor:
        """Without waiting for the device: torch keeps pinned memory until the copy out of it is done."""
        if self._device.type == "cpu":
            return torch.tensor(numbers, dtype=torch.int64)
        pinned = torch.tensor(numbers, dtype=torch.int64, pin_memory=True)
        return pinned.to(self._device, non_blocking=True)

    def lora_code_size(self, n_tokens: int) -> int:
        return lora_tiles.code_size(n_tokens)

    def encode_runs(self, runs: Sequence[LoraRun], n_tokens: int) -> Sequence[int]:
        return lora_tiles.encode(runs, n_tokens)

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
        lora_tiles.add_lora(
            out=out,
            x=x,
            arena=arena,
            code=batch.code,
            planes=self._planes,
            layer=layer,
            site=site,
            base_bias=base_bias,
            max_rank=self._max_rank,
            processors=self._processors,
            config=lora_config(x.shape[0] <= MAX_LOW_TOKENS, site.in_features, len(site.slices), arena.dtype),
        )

    def greedy(self, *, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return sampling.greedy(logits=logits)

    def run(self, compute: Callable[[], torch.Tensor]) -> torch.Tensor:
        return compute()

    def record(self, compute: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, Recording] | None:
        """By a CUDA graph. The first computation, on the stream that is captured afterwards, compiles what is not
        compiled yet and lets cuBLAS take its workspace, of which every stream has its own; neither may happen in a
        capture."""
        if self._device.type == "cpu":
            return None
        if self._stream is None:
            self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream = self._stream
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            first = compute()
        torch.cuda.current_stream().wait_stream(stream)
        kept = self._room_for(first)
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=stream):
            kept.copy_(compute())
        graph.replay()
        return kept, CudaRecording(graph)

    def _room_for(self, result: torch.Tensor) -> torch.Tensor:
        """Rows like these, for all recordings the same ones: each its own logits would be hundreds of megabytes."""
        n_rows, width = result.shape
        key = width, result.dtype
        if key not in self._results or self._results[key].shape[0] < n_rows:
            self._results[key] = torch.empty_like(result)
        return self._results[key][:n_rows]


class PageShape(NamedTuple):
    """What attention's launch configuration depends on: head width, query heads of a KV head, tokens of a block."""

    width: int
    group: int
    block: int
    dtype: torch.dtype

    @property
    def key(self) -> dict[str, int | str]:
        dtype = str(self.dtype).removeprefix("torch.")
        return {"D": self.width, "G": self.group, "block": self.block, "dtype": dtype}


@lru_cache
def decode_config(shape: PageShape) -> DecodeConfig:
    """The same for steps of any size: it decides how a row's sums are cut, which must not depend on its companions."""
    default = default_decode(width=shape.width, group=shape.group, dtype=shape.dtype)
    return replace(default, **config_for("attention_decode", **shape.key))


@lru_cache
def prefill_config(shape: PageShape, window: int) -> PrefillConfig:
    default = default_prefill(width=shape.width, window=window, dtype=shape.dtype)
    return replace(default, **config_for("attention_prefill", **shape.key, windowed=int(window > 0)))


@lru_cache
def lora_config(is_low: bool, in_features: int, n_slices: int, dtype: torch.dtype) -> lora_tiles.LoraConfig:
    """By the height of a step's tiles, so that sums are cut alike in all steps of a kind."""
    n_tokens = MAX_LOW_TOKENS if is_low else MAX_LOW_TOKENS + 1
    default = lora_tiles.default_config(n_tokens=n_tokens, in_features=in_features, dtype=dtype)
    key: dict[str, int | str] = {"rows": tile_height(n_tokens), "in": in_features, "slices": n_slices}
    return replace(default, **config_for("lora", **key, dtype=str(dtype).removeprefix("torch.")))


def _tiles(batch: AttentionBatch, queries_per_tile: int) -> list[tuple[int, int, int, int]]:
    return prefill_tiles(
        query_starts=batch.query_starts,
        context_lens=batch.context_lens,
        rows=range(batch.n_decode, batch.n_rows),
        queries_per_tile=queries_per_tile,
    )
