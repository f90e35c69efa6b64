"""What the Triton attention kernels promise beyond the port: splits, tiles, addresses, and bits that do not change.

Small tiles, so that a few keys cross every edge.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch

from lorikeet_engine.ops.interface import AttentionBatch
from lorikeet_engine.ops.reference import ReferenceOps
from lorikeet_engine.ops.triton.attention_decode import (
    DecodeConfig,
    attend_decode,
    default_config,
    split_capacity,
    split_plan,
)
from lorikeet_engine.ops.triton.attention_prefill import NO_TILE, PrefillConfig, attend_prefill, prefill_tiles
from lorikeet_engine.ops.triton.kv_write import rotary_write_kv
from tests.support.attention_cases import (
    ATTENTION_TOLERANCE,
    AttentionCase,
    AttentionData,
    attend,
    attention_data,
    decoding,
    rows_of,
)
from tests.support.closeness import relative_error

TINY = DecodeConfig(block_n=16, num_warps=4, num_stages=2, split_min=16, max_splits=4)
FEW_QUERIES = PrefillConfig(block_m=16, block_n=16, num_warps=4, num_stages=2)
TOLERANCE = ATTENTION_TOLERANCE[torch.float32]
BEYOND_ANY_TABLE = 1 << 40


def decode(case: AttentionCase, data: AttentionData, config: DecodeConfig = TINY) -> torch.Tensor:
    """Into an output full of NaN, over a table whose rows end where their columns do."""
    tables = data.batch.block_tables
    guarded = torch.full((tables.shape[0], tables.shape[1] + 2), BEYOND_ANY_TABLE)
    guarded[:, : tables.shape[1]] = tables
    out = torch.full_like(data.q, float("nan"))
    attend_decode(
        q=data.q,
        k_cache=data.k_cache,
        v_cache=data.v_cache,
        contexts=data.batch.contexts,
        block_tables=guarded[:, : tables.shape[1]],
        scale=case.width**-0.5,
        out=out,
        window=case.window,
        config=config,
    )
    return out


def prefill(case: AttentionCase, data: AttentionData, config: PrefillConfig = FEW_QUERIES) -> torch.Tensor:
    group = case.heads // case.kv_heads
    tiles = prefill_tiles(
        query_starts=data.batch.query_starts,
        context_lens=data.batch.context_lens,
        rows=range(data.batch.n_decode, data.batch.n_rows),
        queries_per_tile=config.queries_per_tile(group),
    )
    out = torch.full_like(data.q, float("nan"))
    attend_prefill(
        q=data.q,
        k_cache=data.k_cache,
        v_cache=data.v_cache,
        block_tables=data.batch.block_tables,
        tiles=torch.tensor([*tiles, NO_TILE, NO_TILE]),
        scale=case.width**-0.5,
        out=out,
        window=case.window,
        config=config,
    )
    return out


def oracle(case: AttentionCase, data: AttentionData) -> torch.Tensor:
    return attend(ReferenceOps(exact=True), case, data).view(data.q.shape)


@pytest.mark.parametrize("window", [0, 1, 40, 300])
@pytest.mark.parametrize("config", [TINY, default_config(width=128, group=4, dtype=torch.bfloat16)], ids=str)
def test_splits_cover_what_a_row_sees_and_each_has_something(config: DecodeConfig, window: int) -> None:
    for context in [*range(400), 1000, 4095, 4096, 4097, 70_000, 131_072]:
        start, per_split, n_splits = split_plan(context, window, config)
        first_seen = max(0, context - window) if window else 0
        assert start <= first_seen
        assert first_seen - start < config.block_n
        assert (n_splits - 1) * per_split < max(context - start, 1) <= max(n_splits, 1) * per_split
        assert per_split % config.block_n == 0
        assert n_splits <= split_capacity(context, window, config) <= split_capacity(context + 1, window, config)


def test_no_split_is_longer_than_the_row_makes_necessary() -> None:
    """Whatever runs beside it: a batch's size is not asked for (vLLM 47520)."""
    config = default_config(width=128, group=4, dtype=torch.bfloat16)
    for context in range(1, 200_000, 997):
        _, per_split, n_splits = split_plan(context, 0, config)
        assert per_split <= max(config.split_min, context / config.max_splits + config.block_n)
        assert n_splits >= min(config.max_splits // 2, context // config.split_min)


def test_every_length_around_tiles_and_splits_decodes_right() -> None:
    """Among them rows with fewer tiles than splits, which leave splits empty."""
    case = AttentionCase(
        "lengths",
        decoding(0, 1, 2, 14, 15, 16, 17, 18, 31, 32, 33, 47, 48, 49, 63, 64, 65, 66, 127, 129),
        heads=2,
        kv_heads=1,
    )
    data = attention_data(case, torch.float32)
    assert relative_error(decode(case, data), oracle(case, data)) <= TOLERANCE


@pytest.mark.parametrize("window", [1, 15, 16, 17, 40])
def test_a_window_ends_anywhere_in_a_tile(window: int) -> None:
    rows = (*decoding(1, 16, 17, 40, 97), (40, 40), (50, 13))
    case = AttentionCase("window", rows, heads=3, kv_heads=1, window=window)
    data = attention_data(case, torch.float32)
    batch, tokens = rows_of(data.batch, range(5))
    decoded = decode(case, replace(data, q=data.q[tokens], batch=batch))
    expected = oracle(case, data)
    assert relative_error(decoded, expected[:5]) <= TOLERANCE
    assert relative_error(prefill(case, data)[5:], expected[5:]) <= TOLERANCE


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_decode_row_has_the_same_bits_in_any_company(dtype: torch.dtype) -> None:
    case = AttentionCase("company", decoding(40, 200, 3, 64, 65), heads=3, kv_heads=1)
    data = attention_data(case, dtype)
    together = decode(case, data)
    for rows in ([0], [1], [4, 0, 3], [2, 1]):
        batch, tokens = rows_of(data.batch, rows)
        narrow = -(-max(batch.context_lens) // case.block)
        batch = replace(batch, block_tables=batch.block_tables[:, :narrow])
        assert torch.equal(decode(case, replace(data, q=data.q[tokens], batch=batch)), together[tokens])


@pytest.mark.parametrize("programs", [1, 6, 9])
def test_how_many_programs_share_the_splits_changes_no_bit(programs: int) -> None:
    case = AttentionCase("shared", decoding(40, 200, 0), heads=3, kv_heads=1)
    data = attention_data(case, torch.float32)
    assert torch.equal(decode(case, data, replace(TINY, programs=programs)), decode(case, data))


def test_the_same_step_has_the_same_bits_every_time() -> None:
    case = AttentionCase("again", (*decoding(40, 200), (50, 20)), heads=3, kv_heads=1)
    data = attention_data(case, torch.float32)
    first = prefill(case, data)
    assert all(torch.equal(prefill(case, data)[2:], first[2:]) for _ in range(3))


@pytest.mark.parametrize(("heads", "kv_heads", "block_m"), [(3, 1, 16), (4, 4, 16), (8, 2, 32), (24, 1, 16)])
def test_queries_end_anywhere_in_their_tile(heads: int, kv_heads: int, block_m: int) -> None:
    config = replace(FEW_QUERIES, block_m=block_m)
    at_once = config.queries_per_tile(heads // kv_heads)
    rows = tuple((n + 7, n) for n in sorted({max(2, at_once - 1), at_once + 1, 2 * at_once + 1, 2, 5}))
    case = AttentionCase("queries", rows, heads=heads, kv_heads=kv_heads)
    data = attention_data(case, torch.float32)
    assert relative_error(prefill(case, data, config), oracle(case, data)) <= TOLERANCE


def test_tiles_hold_every_query_once_and_begin_with_the_longest() -> None:
    starts, contexts = (0, 1, 8, 28), (90, 7, 50)
    tiles = prefill_tiles(query_starts=starts, context_lens=contexts, rows=range(1, 3), queries_per_tile=6)
    held = [first + i for _, first, _, n in tiles for i in range(n)]
    assert sorted(held) == list(range(1, 28))
    for row, group in itertools.groupby(tiles, key=lambda tile: tile[0]):
        of_row = list(group)
        assert [position for _, _, position, _ in of_row] == sorted((t[2] for t in of_row), reverse=True)
        assert all(position - first == contexts[row] - starts[row + 1] for _, first, position, _ in of_row)


def test_prefill_writes_its_own_tokens_and_no_others() -> None:
    case = AttentionCase("decode_first", (*decoding(40, 9), (50, 20), (7, 7)), heads=3, kv_heads=1)
    data = attention_data(case, torch.float32)
    out = prefill(case, data)
    assert bool(torch.isnan(out[:2]).all())
    assert relative_error(out[2:], oracle(case, data)[2:]) <= TOLERANCE


def far_pages(near: AttentionData) -> AttentionData:
    """The same pages with the last block 2^31 elements from the first, in memory that is hardly ever touched."""
    n_blocks, elements = near.k_cache.shape[0], near.k_cache[0].numel()
    stride = (1 << 31) // (n_blocks - 2) // 16 * 16 + 16
    room = torch.empty(stride * (n_blocks - 1) + 2 * elements, dtype=near.k_cache.dtype)
    caches = []
    for index, cache in enumerate((near.k_cache, near.v_cache)):
        pages = room.as_strided(cache.shape, (stride, *cache.stride()[1:]), index * elements)
        pages.copy_(cache)
        caches.append(pages)
    return replace(near, k_cache=caches[0], v_cache=caches[1])


def test_blocks_lie_beyond_what_32_bits_count() -> None:
    case = AttentionCase("far", ((100, 1), (100, 3)), heads=2, kv_heads=1, spare_blocks=0)
    near = attention_data(case, torch.float16)
    data, expected = far_pages(near), oracle(case, near)
    batch, tokens = rows_of(data.batch, [0])
    tolerance = ATTENTION_TOLERANCE[torch.float16]
    decoded = decode(case, replace(data, q=data.q[tokens], batch=batch))
    assert relative_error(decoded, expected[:1]) <= tolerance
    assert relative_error(prefill(case, data)[1:], expected[1:]) <= tolerance


def test_slots_lie_beyond_what_32_bits_count() -> None:
    case = AttentionCase("far", ((100, 1), (100, 99)), heads=2, kv_heads=1, spare_blocks=0)
    data = far_pages(attention_data(case, torch.float16))
    k = torch.randn(data.q.shape[0], 1, case.width).half()
    rotary_write_kv(
        q=data.q,
        k=k,
        v=-k,
        rotary=None,
        positions=data.batch.positions,
        slot_blocks=data.batch.slot_blocks,
        slot_offsets=data.batch.slot_offsets,
        k_cache=data.k_cache,
        v_cache=data.v_cache,
    )
    slots = (data.batch.slot_blocks, slice(None), data.batch.slot_offsets)
    assert torch.equal(data.k_cache[slots], k)
    assert torch.equal(data.v_cache[slots], -k)


def test_a_step_with_shorter_rows_reads_nothing_of_the_one_before() -> None:
    """Tables of one width and stale entries, as a recorded step finds them (nano-vllm 190)."""
    case = AttentionCase("long", decoding(129, 200, 64), heads=3, kv_heads=1)
    data = attention_data(case, torch.float32)
    decode(case, data)
    shorter = AttentionBatch(
        n_decode=3,
        query_starts=(0, 1, 2, 3),
        context_lens=(17, 0, 64),
        contexts=torch.tensor([17, 0, 64]),
        block_tables=data.batch.block_tables,
        positions=data.batch.positions,
        slot_blocks=data.batch.slot_blocks,
        slot_offsets=data.batch.slot_offsets,
    )
    replayed = replace(data, batch=shorter)
    assert relative_error(decode(case, replayed), oracle(case, replayed)) <= TOLERANCE


def test_no_rows_are_no_work() -> None:
    case = AttentionCase("none", decoding(5), heads=2, kv_heads=1)
    data = attention_data(case, torch.float32)
    batch, tokens = rows_of(data.batch, [])
    nothing = replace(data, q=data.q[tokens], batch=batch)
    assert decode(case, nothing).shape == prefill(case, nothing).shape == (0, 2, 16)


def test_pages_with_gaps_inside_a_block_are_refused() -> None:
    case = AttentionCase("one", decoding(5), heads=2, kv_heads=1)
    data = attention_data(case, torch.float32)
    holed = torch.zeros(4, 1, 16, 32)[..., :16]
    with pytest.raises(ValueError, match="without gaps"):
        decode(case, replace(data, k_cache=holed, v_cache=holed))
    with pytest.raises(ValueError, match="queries of shape"):
        decode(case, replace(data, q=data.q[..., :8]))
