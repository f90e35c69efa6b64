"""The case table of attention: rows over pages in which every slot that holds no token is NaN."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lorikeet_engine.ops.interface import AttentionBatch

# Norm of the error over norm of the result; the weights are rounded to the values' dtype, too.
ATTENTION_TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2}


@dataclass(frozen=True)
class AttentionCase:
    """Rows as (context length, query tokens), decode rows first; blocks are handed out in shuffled order."""

    name: str
    rows: tuple[tuple[int, int], ...]
    heads: int = 6
    kv_heads: int = 2
    width: int = 16
    block: int = 16
    window: int = 0
    shared_blocks: int = 0  # leading blocks that all rows have in common
    magnitude: float = 1.0
    spare_blocks: int = 3

    def __str__(self) -> str:
        return self.name


ATTENTION_CASES = (
    AttentionCase("decode_one", ((1, 1),)),
    AttentionCase("decode_block_edges", tuple((n, 1) for n in (15, 16, 17, 31, 32, 33))),
    AttentionCase("decode_ragged", ((1, 1), (100, 1), (7, 1))),
    AttentionCase("decode_one_head_per_group", ((20, 1), (33, 1)), heads=4, kv_heads=4),
    AttentionCase("decode_wide_group", ((40, 1),), heads=16, kv_heads=2, width=64),
    AttentionCase("decode_odd_group", ((40, 1), (1, 1)), heads=7, kv_heads=1, width=80),
    AttentionCase("prefill_whole", ((16, 16), (17, 17), (2, 2))),
    AttentionCase("prefill_chunk_of_a_longer_prompt", ((40, 8), (33, 2), (64, 16))),
    AttentionCase("decode_and_prefill", ((9, 1), (64, 1), (30, 30), (50, 3))),
    AttentionCase("window_shorter_than_a_block", ((40, 1), (3, 1), (40, 20)), window=5),
    AttentionCase("window_over_blocks", ((100, 1), (100, 40), (20, 20)), window=33),
    AttentionCase("shared_prefix_blocks", ((40, 1), (45, 1), (50, 9)), shared_blocks=2),
    AttentionCase("large_logits", ((60, 1), (40, 20)), magnitude=60.0),
    AttentionCase("blocks_of_32", ((31, 1), (32, 1), (65, 33)), block=32, width=64),
    AttentionCase("blocks_of_1", ((5, 1), (7, 3)), block=1),
)


@dataclass
class AttentionData:
    q: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    batch: AttentionBatch
    used: torch.Tensor  # bool [blocks, block]: slots that hold a token


def attention_data(case: AttentionCase, dtype: torch.dtype) -> AttentionData:
    generator = torch.Generator().manual_seed(7)
    per_row = [-(-context // case.block) for context, _ in case.rows]
    own = sum(n - case.shared_blocks for n in per_row)
    n_blocks = 1 + case.shared_blocks + own + case.spare_blocks
    ids = (1 + torch.randperm(n_blocks - 1, generator=generator)).tolist()
    shared, ids = ids[: case.shared_blocks], ids[case.shared_blocks :]
    tables = torch.zeros(len(case.rows), max(per_row), dtype=torch.int64)
    used = torch.zeros(n_blocks, case.block, dtype=torch.bool)
    used[0] = True
    slot_blocks, slot_offsets, starts = [], [], [0]
    for row, (context, n_query) in enumerate(case.rows):
        n_own = per_row[row] - case.shared_blocks
        blocks, ids = [*shared, *ids[:n_own]], ids[n_own:]
        tables[row, : per_row[row]] = torch.tensor(blocks)
        for position in range(context):
            used[blocks[position // case.block], position % case.block] = True
        for position in range(context - n_query, context):
            slot_blocks.append(blocks[position // case.block])
            slot_offsets.append(position % case.block)
        starts.append(starts[-1] + n_query)
    shape = (n_blocks, case.kv_heads, case.block, case.width)
    caches = []
    for _ in range(2):
        cache = torch.randn(shape, generator=generator)
        cache[0] = 0.0
        caches.append(cache.masked_fill(~used[:, None, :, None], float("nan")).to(dtype))
    q = torch.randn(starts[-1], case.heads, case.width, generator=generator) * case.magnitude
    n_decode = next((i for i, (_, n) in enumerate(case.rows) if n != 1), len(case.rows))
    batch = AttentionBatch(
        n_decode=n_decode,
        query_starts=tuple(starts),
        context_lens=tuple(context for context, _ in case.rows),
        block_tables=tables,
        slot_blocks=torch.tensor(slot_blocks),
        slot_offsets=torch.tensor(slot_offsets),
    )
    return AttentionData(q.to(dtype), caches[0], caches[1], batch, used)
