"""The simulated device and disk: how long things take, and where answers end."""

from __future__ import annotations

import pytest

from lorikeet_engine.cost import ModelCost, StepShape, lora_row_flops, roofline_seconds
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.scheduling.plan import BlockCopy, Phase, PlanRow, SamplingParams, StepPlan
from lorikeet_engine.simulation.roofline_runner import RooflineRunner
from lorikeet_engine.simulation.shipped import load_device, load_model
from lorikeet_engine.simulation.virtual_disk import VirtualClock, VirtualDisk, VirtualImage

COST, DEVICE = ModelCost.of(load_model("llama-3-8b")), load_device("h200")
ADAPTER, OTHER = AdapterKey("t", "a"), AdapterKey("t", "b")
GRAINS = {ADAPTER: 1000, OTHER: 3000}
EOS = 40_000


@pytest.fixture
def runner() -> RooflineRunner:
    return RooflineRunner(
        cost=COST, profile=DEVICE, adapter_grains=GRAINS, grain_bytes=32, block_bytes=2 << 20, eos=EOS
    )


def row(
    request_id: str, phase: Phase, n: int, start: int, *, adapter: AdapterKey | None = None, n_generated: int = 0
) -> PlanRow:
    samples = phase is Phase.DECODE
    return PlanRow(request_id, phase, (1,) * n, start, (), adapter, -1, samples, SamplingParams(), n_generated)


def test_a_step_takes_what_the_roofline_says_of_its_rows(runner: RooflineRunner) -> None:
    rows = (
        row("a", Phase.DECODE, 1, 99, adapter=ADAPTER),
        row("b", Phase.DECODE, 1, 49, adapter=ADAPTER),
        row("c", Phase.PREFILL, 64, 128, adapter=OTHER),
        row("d", Phase.PREFILL, 32, 0),
    )
    shape = StepShape(lora_bytes=4000 * 32, lora_flops=2 * lora_row_flops(1000 * 32) + 64 * lora_row_flops(3000 * 32))
    shape.add_decode(99)
    shape.add_decode(49)
    shape.add_prefill(64, 128, samples=False)
    shape.add_prefill(32, 0, samples=False)
    result = runner.execute(StepPlan(1, rows))
    assert result.seconds == pytest.approx(roofline_seconds(COST, DEVICE, shape))
    assert set(result.sampled) == {"a", "b"}


def test_an_answer_ends_where_the_workload_says(runner: RooflineRunner) -> None:
    runner.ends_at["a"] = 3
    sampled = [
        runner.execute(StepPlan(n, (row("a", Phase.DECODE, 1, 10 + n, n_generated=n),))).sampled["a"] for n in range(3)
    ]
    assert [token == EOS for token in sampled] == [False, False, True]


def test_placing_and_moving_an_adapter_takes_its_bytes_time(runner: RooflineRunner) -> None:
    assert runner.write_extent(0, VirtualImage(1000)) == pytest.approx(32_000 / DEVICE.host_bandwidth)
    assert runner.move_extent(5000, 1000, 3000) == pytest.approx(2 * 96_000 / DEVICE.peak_bandwidth)
    assert runner.busy_s == runner.placement_s > 0


def test_swaps_and_copies_take_their_bytes_time(runner: RooflineRunner) -> None:
    plan = StepPlan(
        1,
        (),
        swap_outs=(BlockCopy(1, 1), BlockCopy(2, 2)),
        swap_ins=(BlockCopy(3, 3),),
        copies=(BlockCopy(4, 5),),
    )
    swap_s = DEVICE.copy_waited * 3 * (2 << 20) / DEVICE.host_bandwidth
    copy_s = 2 * (2 << 20) / DEVICE.peak_bandwidth
    assert runner.execute(plan).seconds == pytest.approx(swap_s + copy_s)


def test_the_disk_reads_one_adapter_after_the_other() -> None:
    clock = VirtualClock()
    disk = VirtualDisk(clock, GRAINS, 32, bandwidth=32_000.0, latency_s=0.5)
    disk.start(ADAPTER)
    disk.start(OTHER)
    assert disk.next_at() == 1.5
    clock.now = 1.4
    assert disk.poll() == []
    clock.now = 1.5
    assert [load.key for load in disk.poll()] == [ADAPTER]
    clock.now = 5.0
    assert [(load.key, load.image.n_grains) for load in disk.poll()] == [(OTHER, 3000)]
    assert disk.next_at() is None
