"""Sweeps on a real engine over a tiny model: what its counters say is what its steps did, and KV grows as it must."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from lorikeet_engine.build import LoadedModel, load_model
from lorikeet_engine.cost import intensity, ridge
from lorikeet_engine.experiments.__main__ import main
from lorikeet_engine.experiments.lines import kv_line
from lorikeet_engine.experiments.measures import Outcome, Peaks
from lorikeet_engine.experiments.record import Machine, read_record
from lorikeet_engine.experiments.recount import Recount
from lorikeet_engine.experiments.scenarios.named import EMBEDDED, Size, lengths
from lorikeet_engine.experiments.scenarios.setup import Load, Setup
from lorikeet_engine.experiments.targets import on_engine
from lorikeet_engine.experiments.targets.on_engine import EngineTarget
from lorikeet_engine.scheduling.plan import Phase, StepPlan
from lorikeet_engine.simulation.workload.strict_records import DescriptionError
from tests.support.tiny_models import save_model

PEAKS = Peaks(397e9, 34e9)
SMALL = replace(
    EMBEDDED,
    model="tiny",
    lengths=(32, 64, 96, 128, 192),
    output=32,
    budget=256,
    pool=4096,
    max_seats=16,
    requests_per_client=2,
)


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model("llama", tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def model(model_dir: Path) -> LoadedModel:
    return load_model(model_dir, "float32")


@pytest.fixture
def target_with(model_dir: Path, model: LoadedModel) -> Callable[[Callable[[StepPlan], None] | None], EngineTarget]:
    machine = Machine(model="tiny", device="cpu", peak_flops=PEAKS.peak_flops, peak_bandwidth=PEAKS.peak_bandwidth)
    return lambda on_plan: EngineTarget(model_dir, model, machine, on_plan)


TargetWith = Callable[[Callable[[StepPlan], None] | None], EngineTarget]


def sweep(target: EngineTarget, setups: Sequence[Setup]) -> list[Outcome]:
    return [Outcome(target.run(setup)) for setup in setups]


def test_kv_use_grows_by_one_token_a_client_for_each_token_of_the_prompts(target_with: TargetWith) -> None:
    found = kv_line(sweep(target_with(None), lengths(SMALL)))
    assert found.slope == pytest.approx(SMALL.clients, rel=0.01)
    assert found.r_squared >= 0.9999


def test_flops_and_bytes_equal_a_recount_from_the_plans_of_the_steps(
    target_with: TargetWith, model: LoadedModel
) -> None:
    recount = Recount(model.spec, itemsize=4)
    (outcome,) = sweep(target_with(recount.add), [SMALL.setup(100)])
    whole = outcome.window.whole
    assert whole.steps == recount.steps
    assert whole.work.flops == pytest.approx(recount.flops, rel=0.001)
    assert whole.work.read_bytes == pytest.approx(recount.read_bytes, rel=0.001)
    assert recount.write_bytes == 8 * 2 * (100 + 31) * 2 * 2 * 2 * 16 * 4  # every token but each answer's last


def test_answers_go_on_to_their_length_and_are_told_one_by_one(target_with: TargetWith) -> None:
    point = target_with(None).run(SMALL.setup(64))
    assert [(request.outcome, request.n_prompt, request.n_output, request.n_cached) for request in point.requests] == [
        ("ok", 64, 32, 0)
    ] * 16
    assert sum(n for _, n in point.gaps) == 16 * 31
    for request in point.requests:
        assert request.queue_s is not None
        assert request.first_s is not None
        assert request.last_s is not None
        assert request.sent_s <= request.first_s < request.last_s <= point.seconds
    assert point.readings[0].output_tokens + 16 * 32 == point.readings[-1].output_tokens


def test_the_clock_moves_by_what_the_steps_really_took(target_with: TargetWith) -> None:
    point = target_with(None).run(SMALL.setup(64))
    busy_s = sum(phase.seconds for phase in Outcome(point).window.phases.values())
    assert 0 < busy_s <= point.seconds
    assert point.seconds < busy_s + 2 * SMALL.pause_s + 5  # nobody slept through the clients' pauses


def test_a_warm_up_is_in_no_figure(target_with: TargetWith) -> None:
    plans: list[StepPlan] = []
    point = target_with(plans.append).run(replace(SMALL, requests_per_client=1).setup(32, clients=1))
    assert all(row.request_id != "warm-up" for plan in plans for row in plan.rows)
    assert Outcome(point).window.whole.steps == len(plans) == 32
    assert [row.phase for row in plans[0].rows] == [Phase.PREFILL]


def test_o1_11_mfu_over_mbu_is_intensity_over_ridge_in_every_window_of_an_engines_counters(
    target_with: TargetWith,
) -> None:
    outcome = Outcome(target_with(None).run(replace(SMALL, requests_per_client=8).setup(192)))
    windows = [window for window in [*outcome.windows(), outcome.window] if window.phases]
    assert len(windows) > 2
    for window in windows:
        for phase in [*window.phases.values(), window.whole]:
            assert phase.mfu(PEAKS) / phase.mbu(PEAKS) == pytest.approx(intensity(phase.work) / ridge(PEAKS), rel=1e-9)


def test_o1_3_the_pool_that_was_asked_for_is_there_to_the_block(target_with: TargetWith) -> None:
    for pool_tokens in (512, 1024, 4096):
        setup = replace(SMALL, pool=pool_tokens, requests_per_client=1).setup(16, clients=1)
        assert target_with(None).run(setup).pool_tokens == pool_tokens


def test_a_common_head_is_there_once_where_prefixes_are_cached(target_with: TargetWith) -> None:
    size: Size = replace(SMALL, lengths=(64, 128, 192), output=16)
    half = sweep(target_with(None), [size.setup(length, shared=0.5) for length in size.lengths])
    assert kv_line(half).slope == pytest.approx(8 / 2 + 1 / 2, rel=0.05)
    requests = half[-1].point.requests
    assert sum(request.n_cached == 96 for request in requests) >= len(requests) - 1


@pytest.mark.parametrize(
    ("setup", "said"),
    [
        (
            Setup(load=Load(prompt_tokens=200, output_tokens=100), pool_tokens=4096),
            "are more than the engine's max_model_len 256",
        ),
        (Setup(load=Load(), pool_tokens=100), "pool_tokens 100 are no whole blocks of 32 tokens"),
        (Setup(load=Load(), engine={"dtype": "float32"}), "engine.dtype is decided for the whole sweep"),
        (Setup(load=Load(), engine={"max_seats": 3}), "unknown engine settings: max_seats"),
        (Setup(load=Load(), engine={"block_size": 24}), "block_size: 24 is not a power of two"),
        (Setup(load=Load(), engine={"max_model_len": 512}), "max_model_len 512 is beyond the model's 256"),
    ],
)
def test_what_cannot_be_run_is_refused_by_name(target_with: TargetWith, setup: Setup, said: str) -> None:
    with pytest.raises(DescriptionError, match=said):
        target_with(None).run(setup)


def test_the_command_tells_every_point_and_leaves_the_record(
    model_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_engine, "COPY_BYTES", 1 << 20)
    grid, file = tmp_path / "grid.yaml", tmp_path / "record.json"
    grid.write_text(
        "load: {prompt_tokens: [16, 32], output_tokens: 4, concurrency: 2, requests_per_client: 1}\npool_tokens: 2048\n"
    )
    assert main([str(grid), "--model", str(model_dir), "--device", "cpu", "--json", str(file)]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["setup"]["prompt_tokens"] for line in told] == [16, 32]
    record = read_record(file)
    assert (record.name, record.axis, record.source) == ("grid", "prompt_tokens", "engine")
    assert [len(point.requests) for point in record.points] == [2, 2]
    assert record.machine.copy_bandwidth


def test_the_benchmark_promises_what_a_tiny_model_keeps_too(
    target_with: TargetWith, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks"))
    monkeypatch.setattr(on_engine, "COPY_BYTES", 1 << 20)
    benchmark = importlib.import_module("measured_experiment")
    monkeypatch.setattr(benchmark, "READ_BYTES", 1 << 20)
    size = replace(SMALL, lengths=(32, 96, 192), output=16, requests_per_client=1, budget=128)
    record, figures, tables = benchmark.run(target_with(None), size)
    assert len(record.points) == 3
    assert [figure.holds for figure in figures if figure.target] == [True] * 4
    assert [len(table.rows) for table in tables[:2]] == [3, 3]


def test_a_sweep_that_is_refused_says_why_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nothing", "--json", str(tmp_path / "record.json")]) == 1
    said = capsys.readouterr().err
    assert said.startswith("there is no file nothing and no sweep of that name; sweeps: lengths, ")
    assert said.count("\n") == 1
