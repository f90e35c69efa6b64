"""The adapter arena's bytes."""

from __future__ import annotations

import pytest
import torch

from lorikeet_adapters.manifest import FLAG_SHIFT, GRAIN
from lorikeet_engine.lora.arena import LoraArena
from lorikeet_engine.lora.batch import runs_of
from lorikeet_engine.ops.extents import block_at
from lorikeet_engine.scheduling.plan import Phase, PlanRow, SamplingParams
from tests.support.lora_cases import lora_table, random_extent

TABLE = lora_table(32)
DTYPES = [torch.float32, torch.bfloat16]


def an_extent(rank: int, dtype: torch.dtype = torch.float32, *, skipped: tuple[int, ...] = ()) -> torch.Tensor:
    return random_extent(TABLE, rank, dtype, torch.Generator().manual_seed(rank), skipped=skipped)


def an_arena(n_grains: int = 20_000, dtype: torch.dtype = torch.float32) -> LoraArena:
    return LoraArena(table=TABLE, pool_bytes=n_grains * GRAIN * dtype.itemsize, dtype=dtype, device="cpu")


@pytest.mark.parametrize("dtype", DTYPES)
def test_modules_are_read_where_the_head_says(dtype: torch.dtype) -> None:
    arena, extent = an_arena(dtype=dtype), an_extent(5, dtype, skipped=(1,))
    arena.write(7, extent)
    position = extent.numel() - 5 * (64 + 32)  # the last block is down_proj of the last layer
    entry = arena.head(7)[1][6]
    assert entry.rank == 5
    block = block_at(arena.storage, 7, entry, 64, 32)
    assert torch.equal(block.a.flatten(), extent[position : position + 5 * 64])
    assert torch.equal(block.bt.flatten(), extent[position + 5 * 64 :])
    assert arena.head(7)[0][1].rank == 0


@pytest.mark.parametrize("gap", [-3000, -1, 1, 40, 3000])
def test_a_move_carries_an_extent_over_its_own_grains(gap: int) -> None:
    arena, extent = an_arena(), an_extent(8)
    n_grains, source = extent.numel() // GRAIN, 4000
    arena.write(source, extent)
    before = arena.storage.clone()
    arena.move(source, source + gap, n_grains)
    target = (source + gap) * GRAIN
    assert torch.equal(arena.storage[target : target + extent.numel()], extent)
    outside = torch.ones(arena.storage.numel(), dtype=torch.bool)
    outside[min(source, source + gap) * GRAIN : (max(source, source + gap) + n_grains) * GRAIN] = False
    assert torch.equal(arena.storage[outside], before[outside])
    assert arena.head(source + gap)[0][0].rank == 8
    with pytest.raises(KeyError):
        arena.head(source)


def test_an_extent_written_over_another_makes_it_unknown() -> None:
    arena, first, second = an_arena(), an_extent(8), an_extent(2)
    arena.write(100, first)
    arena.write(100 + first.numel() // GRAIN - 1, second)
    with pytest.raises(KeyError):
        arena.head(100)
    arena.write(100, second)
    assert arena.head(100)[0][0][1] == 2


def test_neighbours_stay_known() -> None:
    arena, extent = an_arena(), an_extent(4)
    n_grains = extent.numel() // GRAIN
    for place in range(3):
        arena.write(place * n_grains, extent)
    assert [arena.head(place * n_grains)[0][0][1] for place in range(3)] == [4, 4, 4]


def test_what_does_not_fit_is_refused_and_changes_nothing() -> None:
    arena, extent = an_arena(3000), an_extent(8)
    before = arena.storage.clone()
    for base in (-1, 3000 - extent.numel() // GRAIN + 1):
        with pytest.raises(ValueError, match="leave an arena"):
            arena.write(base, extent)
    with pytest.raises(ValueError, match="does not fit"):
        arena.write(0, extent.bfloat16())
    with pytest.raises(ValueError, match="does not fit"):
        arena.write(0, extent[:-1])
    with pytest.raises(ValueError, match="shorter than its head"):
        arena.write(0, extent[:GRAIN])
    assert torch.equal(arena.storage, before)


def test_a_head_that_points_outside_its_extent_is_refused() -> None:
    """It would read a neighbour's weights: another tenant's."""
    for position, value in ((0, 10**6), (0, -4), (1, 60_000)):
        extent = an_extent(4)
        extent.view(torch.int32)[position] = value
        with pytest.raises(ValueError, match="leaves the extent"):
            an_arena().write(0, extent)


def test_flags_that_say_nothing_are_refused() -> None:
    for word in (1 << FLAG_SHIFT, (3 << FLAG_SHIFT) + 1, (4 << FLAG_SHIFT) + 1):
        extent = an_extent(4)
        extent.view(torch.int32)[1] = word
        with pytest.raises(ValueError, match="flags that say nothing"):
            an_arena().write(0, extent)


def test_the_move_of_something_unknown_is_refused() -> None:
    with pytest.raises(ValueError, match="no extent of 5 grains at 10"):
        an_arena().move(10, 0, 5)


def test_neighbouring_rows_of_an_adapter_are_one_run_and_the_base_model_has_none() -> None:
    arena = an_arena()
    for base in (10, 9000):
        arena.write(base, an_extent(8))

    def row(extent: int, n_tokens: int) -> PlanRow:
        return PlanRow("r", Phase.PREFILL, (1,) * n_tokens, 0, (1,), None, extent, True, SamplingParams(), 0)

    runs = runs_of([row(10, 1), row(10, 4), row(-1, 3), row(10, 2), row(9000, 1)], arena)
    assert [(run.base, run.first_token, run.n_tokens) for run in runs] == [(10, 0, 5), (10, 8, 2), (9000, 10, 1)]
