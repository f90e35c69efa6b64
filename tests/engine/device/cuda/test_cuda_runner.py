"""A runner whose device works late and in any order that the fences allow, against one that computes at once.

Everything is on CPU tensors. A fence that was forgotten shows as another token or other logits, for some seed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from lorikeet_adapters.image import AdapterImage
from lorikeet_engine.execution.placement import beside_the_host
from lorikeet_engine.execution.runner import ModelRunner
from lorikeet_engine.lora import arena as arena_module
from lorikeet_engine.sizing.step_memory import few_numbers
from tests.support.asynchronous_device import LateLanes
from tests.support.device import open_runner, plan_of
from tests.support.lane_scenarios import PLACE, a_request, decode, step, with_arrivals_and_moves, with_swaps
from tests.support.tiny_models import pack_adapter, save_adapter

ModelDir = Callable[[str], Path]
SEEDS = range(12)


@pytest.fixture(scope="module")
def images(model_dir: ModelDir, tmp_path_factory: pytest.TempPathFactory) -> list[AdapterImage]:
    directory = model_dir("llama")
    table = open_runner(directory).spec.module_table("tiny")
    folders = [
        save_adapter(directory, tmp_path_factory.mktemp(str(seed)), seed=seed, r=8, target_modules="all-linear")
        for seed in range(2)
    ]
    return [pack_adapter(folder, table, torch.float32) for folder in folders]


@pytest.fixture
def at_once(model_dir: ModelDir) -> ModelRunner:
    return open_runner(model_dir("llama"), adapter_pool_bytes=2 << 20, n_host_slots=8)


@pytest.fixture(params=SEEDS)
def late(request: pytest.FixtureRequest, model_dir: ModelDir) -> ModelRunner:
    placement = beside_the_host("cpu", LateLanes(request.param))
    return open_runner(model_dir("llama"), adapter_pool_bytes=2 << 20, n_host_slots=8, placement=placement)


def test_adapters_arrive_and_move_beside_the_steps(
    late: ModelRunner, at_once: ModelRunner, images: list[AdapterImage]
) -> None:
    assert with_arrivals_and_moves(late, images) == with_arrivals_and_moves(at_once, images)


def test_blocks_leave_and_come_back_beside_the_steps(late: ModelRunner, at_once: ModelRunner) -> None:
    assert with_swaps(late) == with_swaps(at_once)


def test_steps_of_changing_sizes_share_two_buffers_of_words(late: ModelRunner, at_once: ModelRunner) -> None:
    def drive(runner: ModelRunner) -> list[list[int]]:
        requests = [a_request(str(index), 1 + 4 * index) for index in range(5)]
        found = decode(runner, 1, *requests)
        for n in (5, 1, 3, 2, 5, 4):
            found += decode(runner, 1, *requests[:n])
        return found

    assert drive(late) == drive(at_once)


def test_logits_are_there_when_they_are_asked_for(late: ModelRunner, at_once: ModelRunner) -> None:
    for runner_rows in ([a_request("a", 1), a_request("b", 5)], [a_request("c", 9)]):
        plan = plan_of([request.row() for request in runner_rows])
        torch.testing.assert_close(late.logits(plan), at_once.logits(plan), rtol=1e-5, atol=1e-5)


def test_a_step_is_under_way_until_it_is_collected(model_dir: ModelDir) -> None:
    lanes = LateLanes(0, eagerness=0.0)
    runner = open_runner(model_dir("llama"), placement=beside_the_host("cpu", lanes))
    step(runner, a_request("a", 1))
    assert lanes.is_busy
    assert set(runner.collect().sampled) == {"a"}
    assert not lanes.is_busy


@pytest.mark.parametrize("gap", [-3, 3, 40])
def test_a_long_extent_moves_over_a_small_gap_in_a_few_pieces(
    at_once: ModelRunner, images: list[AdapterImage], gap: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arena_module, "SCRATCH_GRAINS", 64)
    at_once.arena.write(PLACE, images[0].extent)
    at_once.arena.move(PLACE, PLACE + gap, images[0].n_grains)
    start = (PLACE + gap) * 16
    assert torch.equal(at_once.arena.storage[start : start + images[0].extent.numel()], images[0].extent)


def test_recorded_sizes_end_with_the_most_rows() -> None:
    assert few_numbers(5) == [1, 2, 4, 5]
    assert few_numbers(16) == [1, 2, 4, 6, 8, 12, 16]
    assert few_numbers(1000)[-1] == 256
