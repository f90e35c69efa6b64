"""The case table of attention: rows over pages in which every slot that holds no token is NaN."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from lorikeet_engine.ops.interface import AttentionBatch, Ops

# Norm of the error over norm of the result; the weights are rounded to the values' dtype, too.
ATTENTION_TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}
ALL_TYPES = ("fp32", "bf16", "fp16")


@dataclass(frozen=True)
class AttentionCase:
    """Rows as (context length, query tokens), decode rows first; blocks are handed out in shuffled order.

    A context of 0 is a row that pads a recorded step: its query is NaN and its slot nowhere.

    Attributes:
        shared_blocks: leading blocks that all rows have in common.
        interpreted: the types for which the interpreter runs the case, which costs it some 5 ms a tile of keys.
    """

    name: str
    rows: tuple[tuple[int, int], ...]
    heads: int = 6
    kv_heads: int = 2
    width: int = 16
    block: int = 16
    window: int = 0
    shared_blocks: int = 0
    magnitude: float = 1.0
    spare_blocks: int = 3
    interpreted: tuple[str, ...] = ("fp32",)

    def __str__(self) -> str:
        return self.name


def decoding(*contexts: int) -> tuple[tuple[int, int], ...]:
    return tuple((context, 1) for context in contexts)


# The kernels' tiles of keys are 16 (fp32), 32 or 64 long, their splits of a decode row 256; tiles of queries hold
# 32 (fp32) or 128 heads' rows: 10 or 42 queries of three heads each.
ATTENTION_CASES = (
    AttentionCase("decode_one", decoding(1), interpreted=ALL_TYPES),
    AttentionCase("decode_block_edges", decoding(15, 16, 17, 31, 32, 33)),
    AttentionCase("decode_tile_edges", decoding(63, 64, 65, 127, 128, 129), interpreted=("bf16",)),
    AttentionCase("decode_ragged", decoding(1, 100, 7), interpreted=ALL_TYPES),
    AttentionCase("decode_split_edges", decoding(255, 256, 257, 513), heads=2, kv_heads=1),
    AttentionCase("decode_many_splits", decoding(3000, 1, 9000), heads=2, kv_heads=1, interpreted=()),
    AttentionCase("decode_padded", decoding(33, 0, 300, 0), heads=3, kv_heads=1, interpreted=ALL_TYPES),
    AttentionCase("decode_only_padding", decoding(0, 0)),
    AttentionCase("decode_one_head_per_group", decoding(20, 33), heads=4, kv_heads=4),
    AttentionCase("decode_group_of_2", decoding(20, 33), heads=4, kv_heads=2),
    AttentionCase("decode_group_of_4", decoding(70, 33), heads=4, kv_heads=1, width=128, interpreted=ALL_TYPES),
    AttentionCase("decode_group_of_8", decoding(40), heads=16, kv_heads=2, width=64),
    AttentionCase("decode_group_of_16", decoding(40), heads=16, kv_heads=1, width=64, interpreted=("bf16",)),
    AttentionCase("decode_group_of_24", decoding(40), heads=24, kv_heads=1, interpreted=("bf16",)),
    AttentionCase("decode_odd_group", decoding(40, 1), heads=7, kv_heads=1, width=80, interpreted=ALL_TYPES),
    AttentionCase("decode_width_256", decoding(40, 1), heads=2, kv_heads=1, width=256, interpreted=ALL_TYPES),
    AttentionCase("prefill_whole", ((16, 16), (17, 17), (2, 2)), interpreted=ALL_TYPES),
    AttentionCase("prefill_query_tile_edges", ((9, 9), (10, 10), (11, 11), (25, 25)), heads=3, kv_heads=1),
    AttentionCase(
        "prefill_wide_query_tile_edges", ((41, 41), (42, 42), (43, 43)), heads=3, kv_heads=1, interpreted=("bf16",)
    ),
    AttentionCase("prefill_behind_block_edges", tuple((n + 5, 5) for n in (0, 1, 15, 16, 17)), heads=3, kv_heads=1),
    AttentionCase("prefill_chunk_of_a_longer_prompt", ((40, 8), (33, 2), (64, 16))),
    AttentionCase("prefill_long", ((1000, 130), (700, 700)), heads=2, kv_heads=1, interpreted=()),
    AttentionCase("prefill_odd_group", ((50, 50), (40, 3)), heads=7, kv_heads=1, width=80, interpreted=ALL_TYPES),
    AttentionCase("prefill_group_of_16", ((40, 20),), heads=16, kv_heads=1, width=64, interpreted=("bf16",)),
    AttentionCase("prefill_width_256", ((40, 20),), heads=2, kv_heads=1, width=256),
    AttentionCase("prefill_width_128", ((70, 40),), heads=4, kv_heads=1, width=128, interpreted=("bf16",)),
    AttentionCase("decode_and_prefill", ((9, 1), (64, 1), (30, 30), (50, 3)), interpreted=ALL_TYPES),
    AttentionCase("window_shorter_than_a_block", ((40, 1), (3, 1), (40, 20)), window=5, interpreted=ALL_TYPES),
    AttentionCase("window_of_a_block", ((40, 1), (16, 1), (17, 1), (40, 20)), window=16),
    AttentionCase("window_over_blocks", ((100, 1), (100, 40), (20, 20)), window=33, interpreted=("fp32", "bf16")),
    AttentionCase("window_over_splits", ((700, 1), (301, 1)), heads=2, kv_heads=1, window=300),
    AttentionCase("shared_prefix_blocks", ((40, 1), (45, 1), (50, 9)), shared_blocks=2),
    AttentionCase("large_logits", ((60, 1), (40, 20)), magnitude=60.0, interpreted=ALL_TYPES),
    AttentionCase("blocks_of_32", ((31, 1), (32, 1), (65, 33)), block=32, width=64),
    AttentionCase("blocks_of_64", ((63, 1), (64, 1), (65, 1), (130, 3)), block=64),
    AttentionCase("blocks_of_1", ((5, 1), (7, 3)), block=1),
    AttentionCase("blocks_of_1_and_whole_vectors", ((100, 1), (16, 1), (48, 1)), block=1, width=64),
)


def attention_case(name: str) -> AttentionCase:
    return next(case for case in ATTENTION_CASES if case.name == name)


@dataclass
class AttentionData:
    q: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    batch: AttentionBatch


def attention_data(case: AttentionCase, dtype: torch.dtype, device: str = "cpu") -> AttentionData:
    generator = torch.Generator().manual_seed(7)
    tables, n_blocks = _block_tables(case, generator)
    used = torch.zeros(n_blocks, case.block, dtype=torch.bool)
    used[0] = True
    positions, slot_blocks, slot_offsets, starts = [], [], [], [0]
    for row, (context, n_query) in enumerate(case.rows):
        seen = torch.arange(context)
        used[tables[row, seen // case.block], seen % case.block] = True
        for position in range(context - n_query, context):
            is_real = position >= 0
            positions.append(max(position, 0))
            slot_blocks.append(int(tables[row, position // case.block]) if is_real else -1)
            slot_offsets.append(position % case.block if is_real else 0)
        starts.append(starts[-1] + n_query)
    shape = (n_blocks, case.kv_heads, case.block, case.width)
    caches = []
    for _ in range(2):
        cache = torch.randn(shape, generator=generator)
        cache[0] = 0.0
        caches.append(cache.masked_fill(~used[:, None, :, None], float("nan")).to(dtype).to(device))
    q = torch.randn(starts[-1], case.heads, case.width, generator=generator) * case.magnitude
    q[torch.tensor(slot_blocks) < 0] = float("nan")
    batch = AttentionBatch(
        n_decode=next((i for i, (_, n) in enumerate(case.rows) if n != 1), len(case.rows)),
        query_starts=tuple(starts),
        context_lens=tuple(context for context, _ in case.rows),
        contexts=torch.tensor([context for context, _ in case.rows], device=device),
        block_tables=tables.to(device),
        positions=torch.tensor(positions, device=device),
        slot_blocks=torch.tensor(slot_blocks, device=device),
        slot_offsets=torch.tensor(slot_offsets, device=device),
    )
    return AttentionData(q.to(dtype).to(device), caches[0], caches[1], batch)


def _block_tables(case: AttentionCase, generator: torch.Generator) -> tuple[torch.Tensor, int]:
    """Every row's blocks, shuffled, and how many blocks there are."""
    per_row = [-(-context // case.block) for context, _ in case.rows]
    own = sum(max(n - case.shared_blocks, 0) for n in per_row)
    n_blocks = 1 + case.shared_blocks + own + case.spare_blocks
    ids = (1 + torch.randperm(n_blocks - 1, generator=generator)).tolist()
    shared, ids = ids[: case.shared_blocks], ids[case.shared_blocks :]
    tables = torch.zeros(len(case.rows), max(1, *per_row), dtype=torch.int64)
    for row, n in enumerate(per_row):
        n_own = max(n - case.shared_blocks, 0)
        blocks, ids = [*shared, *ids[:n_own]][:n], ids[n_own:]
        tables[row, :n] = torch.tensor(blocks, dtype=torch.int64)
    return tables, n_blocks


def attend(ops: Ops, case: AttentionCase, data: AttentionData) -> torch.Tensor:
    """The case's attention by a backend, [T, H * D]."""
    plan = ops.plan_attention(
        batch=data.batch,
        window=case.window,
        n_kv_heads=case.kv_heads,
        block_size=case.block,
        dtype=data.q.dtype,
    )
    scale = case.width**-0.5
    return ops.attention(q=data.q, k_cache=data.k_cache, v_cache=data.v_cache, plan=plan, scale=scale)


def rows_of(batch: AttentionBatch, rows: Sequence[int]) -> tuple[AttentionBatch, torch.Tensor]:
    """These decode rows of a batch as a batch of their own, and their tokens in the old one."""
    index = torch.tensor(rows, dtype=torch.int64, device=batch.contexts.device)
    return AttentionBatch(
        n_decode=len(rows),
        query_starts=tuple(range(len(rows) + 1)),
        context_lens=tuple(batch.context_lens[row] for row in rows),
        contexts=batch.contexts[index],
        block_tables=batch.block_tables[index],
        positions=batch.positions[index],
        slot_blocks=batch.slot_blocks[index],
        slot_offsets=batch.slot_offsets[index],
    ), index
