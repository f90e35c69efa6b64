"""Records of a sweep on the simulator: they survive a file, and say what their points showed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lorikeet_engine.cost import intensity, ridge
from lorikeet_engine.experiments.lines import implied_bandwidth, itl_line, kv_line, series_of
from lorikeet_engine.experiments.measures import Line, Outcome, fit_line, peaks_of
from lorikeet_engine.experiments.record import (
    Machine,
    PointRecord,
    RecordUnreadable,
    RunRecord,
    read_record,
    write_record,
)
from lorikeet_engine.experiments.scenarios.named import PUBLISHED, SHARES, lengths, prefixes
from lorikeet_engine.experiments.scenarios.setup import Load, Scenario, Setup
from lorikeet_engine.experiments.sweep import run_sweep
from lorikeet_engine.experiments.targets.on_simulator import simulator_target
from lorikeet_engine.simulation.workload.strict_records import DescriptionError

SMALL = replace(PUBLISHED, lengths=(64, 128, 256), output=16, clients=4, requests_per_client=2)


def record_of(*setups: Setup, axis: str = "prompt_tokens") -> RunRecord:
    scenario = Scenario(name="s", axis=axis, model=SMALL.model, device=SMALL.device, setups=setups)
    return run_sweep(scenario, simulator_target(SMALL.model, SMALL.device))


def test_a_record_reads_back_as_it_was_written(tmp_path: Path) -> None:
    record = record_of(*lengths(SMALL))
    write_record(record, tmp_path / "r.json")
    assert read_record(tmp_path / "r.json") == record


def test_another_file_is_no_record(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    file.write_text('{"points": 3}')
    with pytest.raises(RecordUnreadable, match=r"r\.json: "):
        read_record(file)


def test_points_are_told_as_they_are_done() -> None:
    told: list[PointRecord] = []
    scenario = Scenario(name="s", axis="prompt_tokens", model="m", device="d", setups=lengths(SMALL))
    record = run_sweep(scenario, simulator_target(SMALL.model, SMALL.device), told.append)
    assert told == record.points
    assert record.source == "simulator"


def test_o1_3_the_published_pool_is_5429_blocks() -> None:
    (point,) = record_of(PUBLISHED.setup(64, clients=1, requests_per_client=1)).points
    assert point.pool_tokens == 5_429 * 16 == 86_864


def test_what_the_counters_say_is_what_the_requests_got() -> None:
    (point,) = record_of(SMALL.setup(64)).points
    first, last = point.readings[0], point.readings[-1]
    assert (first.at_s, first.output_tokens) == (0.0, 0)
    assert last.output_tokens == sum(request.n_output for request in point.requests) == 8 * 16
    assert last.prompt_tokens == sum(request.n_prompt for request in point.requests) == 8 * 64
    assert last.at_s == point.seconds
    outcome = Outcome(point)
    assert outcome.output_s == pytest.approx(outcome.window.output_s)
    assert outcome.total_s == pytest.approx((8 * 16 + 8 * 64) / point.seconds)
    assert outcome.ttft_at(1.0) == max((r.first_s or 0) - r.sent_s for r in point.requests)
    aborted = replace(point.requests[0], n_output=200, outcome="aborted")
    less = Outcome(replace(point, requests=[aborted, *point.requests[1:]]))
    assert (less.output_s, less.total_s) == (7 * 16 / point.seconds, 7 * (16 + 64) / point.seconds)
    mute = replace(point.requests[0], first_s=None, last_s=None, n_output=0)
    assert Outcome(replace(point, requests=[mute, *point.requests[1:]])).ttft_at(0.0) > 0.0


def test_o1_11_mfu_over_mbu_is_intensity_over_ridge_in_every_window_of_a_simulation() -> None:
    record = record_of(PUBLISHED.setup(512, clients=8))
    peaks = peaks_of(record.machine)
    assert peaks
    outcome = Outcome(record.points[0])
    windows = [window for window in outcome.windows() if window.phases]
    assert len(windows) > 20
    for window in windows:
        whole = window.whole
        assert whole.mfu(peaks) / whole.mbu(peaks) == pytest.approx(intensity(whole.work) / ridge(peaks), rel=1e-9)


def test_phases_are_told_apart_and_an_absent_kind_is_left_out() -> None:
    (point,) = record_of(PUBLISHED.setup(512, clients=6)).points
    window = Outcome(point).window
    assert set(window.phases) == {"prefill", "decode", "mixed"}
    assert sum(phase.steps for phase in window.phases.values()) == window.whole.steps
    assert window.phases["prefill"].intensity > 10 * window.phases["decode"].intensity


def test_shared_prefixes_are_one_series_for_each_share() -> None:
    found = series_of(record_of(*prefixes(SMALL)))
    assert [series.named["shared_share"] for series in found] == list(SHARES)
    assert all([o.setup["prompt_tokens"] for o in series.outcomes] == [64, 128, 256] for series in found)


def test_points_that_differ_in_nothing_else_are_one_unnamed_series() -> None:
    (series,) = series_of(record_of(*lengths(SMALL)))
    assert (series.named, len(series.outcomes)) == ({}, 3)


def test_the_slope_of_kv_use_counts_the_clients_and_that_of_itl_the_bandwidth() -> None:
    record = record_of(*lengths(PUBLISHED)[:3])
    outcomes = [Outcome(point) for point in record.points]
    assert kv_line(outcomes).slope == pytest.approx(16, rel=0.01)
    implied = implied_bandwidth(itl_line(outcomes), 16, record.machine.kv_bytes_per_token or 0)
    target = simulator_target(PUBLISHED.model, PUBLISHED.device)
    profile = target.hardware.profile
    assert implied == pytest.approx(profile.peak_bandwidth * profile.mbu, rel=0.02)


def test_a_flat_line_implies_no_bandwidth_and_a_record_without_a_pool_no_tokens() -> None:
    assert implied_bandwidth(Line(1.0, 0.0, 1.0), 8, 100) == float("inf")
    point = PointRecord(setup={"prompt_tokens": 1}, seconds=1.0, requests=[], gaps=[])
    with pytest.raises(ValueError, match="does not say"):
        kv_line([Outcome(point)])
    assert Outcome(point).gap_at(0.5) == 0.0
    assert peaks_of(Machine(model="m", device="d")) is None


def test_a_line_through_points_on_a_line_explains_them() -> None:
    assert fit_line([(0, 1), (1, 3), (2, 5)]) == (1, 2, 1)
    assert fit_line([(0, 1), (1, 1)]) == (1, 0, 1)
    assert fit_line([(0, 0), (1, 1), (2, 0)]).r_squared == 0


def test_half_of_the_gaps_are_at_most_the_median() -> None:
    point = PointRecord(setup={}, seconds=1.0, requests=[], gaps=[(0.1, 5), (0.2, 4), (0.9, 1)])
    outcome = Outcome(point)
    assert [outcome.gap_at(share) for share in (0.5, 0.51, 0.9, 0.91)] == [0.1, 0.2, 0.2, 0.9]


@pytest.mark.parametrize(
    ("setup", "said"),
    [
        (Setup(load=Load(prompt_tokens=9000)), "are more than the engine's max_model_len 8192"),
        (Setup(load=Load(), pool_tokens=100), "pool_tokens 100 are no whole blocks of 16 tokens"),
        (Setup(load=Load(), engine={"dtype": "float32"}), "unknown key engine.dtype"),
        (Setup(load=Load(), engine={"max_num_seqs": "many"}), "engine.max_num_seqs must be a whole number"),
    ],
)
def test_what_cannot_be_simulated_is_refused_by_name(setup: Setup, said: str) -> None:
    with pytest.raises(DescriptionError, match=said):
        record_of(setup)


def test_requests_that_are_refused_are_told_with_the_reason() -> None:
    crowd = Setup(load=Load(prompt_tokens=64, output_tokens=8, concurrency=40), engine={"max_queued_requests": 4})
    (point,) = record_of(crowd).points
    refused = [request for request in point.requests if request.outcome == "refused"]
    assert refused
    assert all(request.code and request.first_s is None and not request.n_output for request in refused)
    assert len(point.requests) == 40 * 6
