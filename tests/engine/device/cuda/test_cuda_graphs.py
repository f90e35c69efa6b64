"""Decode steps recorded once and replayed with other numbers: other lengths, pages, adapters, and rows that only pad.

The recording here keeps the launches and not the numbers, as a CUDA graph does: grids and the tensors' places are those
of the step that was recorded, and all else is read from the tensors anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from lorikeet_adapters.image import AdapterImage
from lorikeet_engine.execution.placement import Placement, beside_the_host
from lorikeet_engine.execution.runner import ModelRunner
from lorikeet_engine.ops.cuda import CudaOps
from lorikeet_engine.ops.interface import Recording
from tests.support.asynchronous_device import LateLanes
from tests.support.device import Driven, open_runner
from tests.support.lane_scenarios import PLACE, a_request, decode
from tests.support.tiny_models import pack_adapter, save_adapter

pytestmark = pytest.mark.slow
ModelDir = Callable[[str], Path]


@dataclass
class Replayed:
    """Launches everything again over the same tensors and leaves the result where the first one was."""

    compute: Callable[[], torch.Tensor]
    result: torch.Tensor
    n_replays: int = 0

    def replay(self) -> None:
        self.n_replays += 1
        self.result.copy_(self.compute())


class RecordingOps(CudaOps):
    """The interpreted kernels with a stand-in for graphs."""

    def __init__(self) -> None:
        super().__init__(device="cpu", max_tokens=64, max_rank=64)
        self.recorded: list[Replayed] = []

    def record(self, compute: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, Recording]:
        self.recorded.append(Replayed(compute, compute()))
        return self.recorded[-1].result, self.recorded[-1]


@pytest.fixture(scope="module")
def images(model_dir: ModelDir, tmp_path_factory: pytest.TempPathFactory) -> list[AdapterImage]:
    directory = model_dir("llama")
    table = open_runner(directory).spec.module_table("tiny")
    folders = [
        save_adapter(directory, tmp_path_factory.mktemp(str(rank)), seed=rank, r=rank, target_modules="all-linear")
        for rank in (8, 5)
    ]
    return [pack_adapter(folder, table, torch.float32) for folder in folders]


def drive(runner: ModelRunner, images: list[AdapterImage]) -> list[list[int]]:
    """Steps of 3, 4, 2 and 3 rows, with no adapter, one, another in its place, and two."""
    requests = [a_request(str(index), 1 + 4 * index) for index in range(4)]
    found = decode(runner, 3, *requests[:3])
    runner.write_extent(PLACE, images[0])
    for request in requests[1:3]:
        set_extent(request, PLACE)
    found += decode(runner, 1, *requests)
    runner.write_extent(PLACE, images[1])
    runner.write_extent(0, images[0])
    set_extent(requests[3], 0)
    found += decode(runner, 2, *requests)
    found += decode(runner, 1, *requests[:2])
    return [*found, *decode(runner, 1, requests[0], requests[3])]


def set_extent(request: Driven, extent: int) -> None:
    request.extent = extent


def test_replayed_steps_give_the_tokens_of_steps_that_are_launched(
    model_dir: ModelDir, images: list[AdapterImage]
) -> None:
    ops = RecordingOps()
    recording = open_runner(model_dir("llama"), adapter_pool_bytes=2 << 20, ops=ops, placement=late_placement(3))
    expected = drive(open_runner(model_dir("llama"), adapter_pool_bytes=2 << 20), images)
    assert drive(recording, images) == expected
    # 4 rows without adapters (padded from 3) and with, 2 rows with: each recorded once.
    assert len(ops.recorded) == 3
    assert sum(step.n_replays for step in ops.recorded) == 3


def test_what_is_recorded_before_the_first_request_serves_all_of_them(
    model_dir: ModelDir, images: list[AdapterImage]
) -> None:
    ops = RecordingOps()
    recording = open_runner(
        model_dir("llama"),
        adapter_pool_bytes=2 << 20,
        max_num_seqs=4,
        max_num_batched_tokens=16,
        ops=ops,
        placement=late_placement(4),
    )
    recording.warm_up()
    n_recorded = len(ops.recorded)
    assert n_recorded == 2 * len((1, 2, 4))
    expected = drive(open_runner(model_dir("llama"), adapter_pool_bytes=2 << 20), images)
    assert drive(recording, images) == expected
    assert len(ops.recorded) == n_recorded


def late_placement(seed: int) -> Placement:
    return beside_the_host("cpu", LateLanes(seed))
