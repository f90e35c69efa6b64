"""The LoRA kernels by themselves, over planes full of NaN: cuts that the defaults do not reach at the cases' sizes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

from lorikeet_engine.ops.interface import LoraRun
from lorikeet_engine.ops.lora_planes import HIGH, LOW, MAX_LOW_TOKENS, planes_size
from lorikeet_engine.ops.reference import ReferenceOps
from lorikeet_engine.ops.triton import lora_tiles
from lorikeet_engine.ops.triton.lora_tiles import LoraConfig
from tests.support.closeness import DTYPES, TOLERANCE, relative_error
from tests.support.lora_cases import SITES, LoraCase, LoraData, add_lora, lora_case, lora_data, runs_at

MAX_RANK = 64
# Many steps of everything: three parts of the sum over the inputs, column tiles within a slice, ranks step by step.
SMALL_CUTS = LoraConfig(
    split=3,
    shrink_ranks=16,
    shrink_inputs=16,
    shrink_warps=4,
    shrink_stages=2,
    shrink_programs=5,
    row_columns=32,
    tile_columns=32,
    expand_ranks=16,
    expand_warps=4,
    expand_stages=2,
    expand_programs=5,
)
# As a step recorded with room for more tokens than are in it now.
ROOM = 40


def launch(
    data: LoraData, site: str, config: LoraConfig | None = None, code: torch.Tensor | None = None
) -> torch.Tensor:
    out = data.out.clone()
    lora_tiles.add_lora(
        out=out,
        x=data.x,
        arena=data.arena.storage,
        code=torch.tensor(lora_tiles.encode(data.runs, len(data.x))) if code is None else code,
        planes=torch.full((planes_size(len(data.x), MAX_RANK),), float("nan")),
        layer=1,
        site=data.arena.site(SITES[site]),
        base_bias=data.base_bias,
        max_rank=MAX_RANK,
        processors=1,
        config=config,
    )
    return out


def expected(data: LoraData, site: str) -> torch.Tensor:
    return add_lora(ReferenceOps(), data, site, 1, data.out.double())


@pytest.mark.parametrize("dtype", [DTYPES["fp32"], DTYPES["bf16"]], ids=str)
@pytest.mark.parametrize(
    ("name", "site"),
    [("rank_not_a_power_of_two", "down"), ("rank_not_a_power_of_two", "qkv"), ("all_flags_in_one_batch", "gate_up")],
)
def test_sums_cut_into_many_steps_are_the_same_sums(name: str, site: str, dtype: torch.dtype) -> None:
    data = lora_data(lora_case(name), site, dtype)
    assert relative_error(launch(data, site, SMALL_CUTS), expected(data, site)) <= TOLERANCE[dtype]


def test_how_many_programs_share_the_work_changes_no_bit() -> None:
    data = lora_data(lora_case("all_flags_in_one_batch"), "qkv", torch.bfloat16)
    alone = launch(data, "qkv", replace(SMALL_CUTS, shrink_programs=1, expand_programs=1))
    assert torch.equal(launch(data, "qkv", replace(SMALL_CUTS, shrink_programs=3, expand_programs=7)), alone)


def test_a_row_has_the_same_bits_beside_any_others() -> None:
    data = lora_data(lora_case("one_token_each"), "qkv", torch.bfloat16)
    together = launch(data, "qkv")
    for run in data.runs[:2] + data.runs[-1:]:
        assert torch.equal(launch(replace(data, runs=(run,)), "qkv")[run.first_token], together[run.first_token])


def test_a_large_step_has_high_tiles() -> None:
    case = LoraCase("large", ((70, 8), (1, 4), (200, None), (29, 8)), hidden=32)
    data = lora_data(case, "o", torch.float32)
    assert sum(length for length, _ in case.segments) > MAX_LOW_TOKENS
    found = launch(data, "o")
    assert relative_error(found, expected(data, "o")) <= TOLERANCE[torch.float32]
    assert torch.equal(found[71:271], data.out[71:271])


def test_the_same_launch_serves_whatever_runs_the_device_reads() -> None:
    """A recorded step keeps its tensors: shorter lists leave the ends of longer ones behind them."""
    data = lora_data(LoraCase("recorded", ((5, 8), (1, 16), (2, 4), (ROOM - 8, None))), "qkv", torch.float32)
    bases = [run.base for run in data.runs]
    code = torch.full((lora_tiles.code_size(ROOM),), -1, dtype=torch.int64)
    for segments in (((5, bases[0]), (1, bases[1]), (2, bases[2])), ((1, bases[2]),), ((2, None), (20, bases[1])), ()):
        data.runs = runs_at(data.arena, segments)
        numbers = lora_tiles.encode(data.runs, ROOM)
        code[: len(numbers)] = torch.tensor(numbers)
        assert relative_error(launch(data, "qkv", code=code), expected(data, "qkv")) <= TOLERANCE[torch.float32]


def test_segments_of_one_or_two_rows_are_listed_as_rows() -> None:
    runs = (LoraRun(7, 0, 1, ()), LoraRun(9, 1, 2, ()), LoraRun(7, 5, 3, ()), LoraRun(8, 8, 33, ()))
    rows = [(7, 0, 1, 0), (9, 1, 1, 0), (9, 2, 1, 0), (8, 40, 1, 0)]
    tiles = [(7, 5, 3, 0), (8, 8, 16, 0), (8, 24, 16, 0)]
    assert lora_tiles.encode(runs, 41) == [4, 3, 0, 0, *(word for tile in rows + tiles for word in tile)]


@pytest.mark.parametrize(("n_tokens", "height"), [(MAX_LOW_TOKENS, LOW), (MAX_LOW_TOKENS + 1, HIGH)])
def test_the_number_of_tokens_decides_how_high_tiles_are(n_tokens: int, height: int) -> None:
    code = lora_tiles.encode((LoraRun(7, 0, n_tokens, ()),), n_tokens)
    assert max(code[6::4]) == height
    one_each = [LoraRun(7, token, 1, ()) for token in range(n_tokens)]
    assert len(lora_tiles.encode(one_each, n_tokens)) == lora_tiles.code_size(n_tokens)


def test_what_the_kernels_cannot_take_is_refused() -> None:
    data = lora_data(lora_case("one_token"), "o", torch.float32)
    site = data.arena.site(SITES["o"])
    add = partial(
        lora_tiles.add_lora,
        x=data.x,
        arena=data.arena.storage,
        code=torch.tensor(lora_tiles.encode(data.runs, 1)),
        layer=0,
        base_bias=None,
        max_rank=MAX_RANK,
        processors=1,
    )
    planes = torch.empty(planes_size(1, MAX_RANK))
    with pytest.raises(ValueError, match="planes of 3"):
        add(out=data.out, planes=planes[:3], site=site)
    with pytest.raises(ValueError, match="stride of 2"):
        add(out=torch.zeros(1, 96)[:, ::2], planes=planes, site=site)
    with pytest.raises(ValueError, match="whole grains"):
        add(out=data.out, planes=planes, site=replace(site, slices=((3, 0, 40),)))
