"""The timeline of a scripted engine's steps: which are kept, what their phases are, how the file looks."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from lorikeet_engine.profiling.step_timeline import StepTimeline
from tests.support.scripted_engine_parts import ScriptedEngine, request, scripted_engine
from tests.support.trace_events import assert_nested, complete_events, inside, named

PHASES = ["collect loads", "reap", "plan", "start loads", "place", "execute", "commit", "observe"]


def ticking() -> Iterator[int]:
    return itertools.count(1000, 10)


def timeline_of(path: Path, *, n_steps: int = 3, n_warm_up: int = 0) -> StepTimeline:
    ticks = ticking()
    return StepTimeline(path, n_steps=n_steps, n_warm_up=n_warm_up, clock=lambda: next(ticks))


def run(engine: ScriptedEngine, timeline: StepTimeline, n_turns: int) -> None:
    for now in range(n_turns):
        with timeline.turn():
            engine.loop.step(float(now))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "timeline.json"


def trace(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def steps(path: Path) -> Sequence[dict[str, Any]]:
    return [event for event in complete_events(trace(path)) if event["cat"] == "step"]


def test_as_many_steps_as_were_asked_for_are_kept_and_written_once(path: Path) -> None:
    timeline = timeline_of(path)
    engine = scripted_engine(timeline=timeline)
    engine.loop.submit([request("a", max_tokens=8)], 0.0)
    run(engine, timeline, 3)
    assert [event["name"] for event in steps(path)] == ["prefill step", "decode step", "decode step"]
    path.unlink()
    run(engine, timeline, 3)
    timeline.close()
    assert not path.exists()


def test_a_step_says_what_it_computed(path: Path) -> None:
    timeline = timeline_of(path, n_steps=1)
    engine = scripted_engine(timeline=timeline)
    for one in (request("a", n_prompt=5, adapter="red"), request("b", n_prompt=6, adapter="red")):
        engine.loop.submit([one], 0.0)
    run(engine, timeline, 4)
    assert steps(path)[0]["args"] == {"step": 2, "kind": "prefill", "rows": 2, "tokens": 11, "adapters": 1}


def test_the_phases_of_a_step_follow_each_other_inside_it(path: Path) -> None:
    timeline = timeline_of(path)
    engine = scripted_engine(timeline=timeline)
    for one in (request("a"), request("b", adapter="red")):
        engine.loop.submit([one], 0.0)
    run(engine, timeline, 6)
    events = complete_events(trace(path))
    assert_nested(events)
    for step in steps(path):
        assert [event["name"] for event in inside(step, events) if event["cat"] == "phase"] == PHASES


def test_turns_that_compute_nothing_and_steps_of_the_warm_up_are_left_out(path: Path) -> None:
    timeline = timeline_of(path, n_steps=2, n_warm_up=1)
    engine = scripted_engine(timeline=timeline)
    run(engine, timeline, 5)
    engine.loop.submit([request("a")], 5.0)
    run(engine, timeline, 4)
    assert [event["name"] for event in steps(path)] == ["decode step", "decode step"]


def test_a_step_that_fails_is_kept(path: Path) -> None:
    timeline = timeline_of(path, n_steps=1)
    engine = scripted_engine(timeline=timeline)
    engine.runner.fail_next = True
    engine.loop.submit([request("a")], 0.0)
    run(engine, timeline, 1)
    assert len(steps(path)) == 1
    assert_nested(complete_events(trace(path)))


def test_an_engine_that_ends_early_writes_the_steps_it_made(path: Path) -> None:
    timeline = timeline_of(path, n_steps=100)
    engine = scripted_engine(timeline=timeline)
    engine.loop.submit([request("a")], 0.0)
    run(engine, timeline, 2)
    assert not path.exists()
    timeline.close()
    assert len(steps(path)) == 2


def test_an_engine_that_computed_nothing_leaves_a_trace_without_events(path: Path) -> None:
    timeline = timeline_of(path)
    timeline.close()
    assert complete_events(trace(path)) == []


def test_ops_of_a_layer_lie_in_a_span_of_the_layer(path: Path) -> None:
    timeline = timeline_of(path, n_steps=1)
    engine = scripted_engine()
    engine.loop.submit([request("a")], 0.0)
    with timeline.turn():
        plan = engine.loop.scheduler.plan(0.0)
        assert plan is not None
        timeline.computes(plan, "prefill")
        with timeline.phase("forward"):
            for name, layer in (("embedding", None), ("qkv", 0), ("o", 0), ("qkv", 1), ("head", None)):
                with timeline.op(name, layer):
                    pass
    events = complete_events(trace(path))
    assert_nested(events)
    assert [event["name"] for event in events] == [
        "prefill step", "forward", "embedding", "layer 0", "qkv", "o", "layer 1", "qkv", "head",
    ]  # fmt: skip
    assert [event["name"] for event in inside(named(events, "layer 0"), events)] == ["qkv", "o"]


def test_the_file_is_what_perfetto_reads(path: Path) -> None:
    timeline = timeline_of(path, n_steps=1)
    timeline.about["model"] = "scripted"
    engine = scripted_engine(timeline=timeline)
    engine.loop.submit([request("a")], 0.0)
    run(engine, timeline, 1)
    content = trace(path)
    assert content["displayTimeUnit"] == "ms"
    assert content["otherData"] == {"model": "scripted"}
    names = {event["name"]: event["args"] for event in content["traceEvents"] if event["ph"] == "M"}
    assert names["process_name"] == {"name": "lorikeet engine"}
    assert names["thread_name"] == {"name": "engine loop"}
    assert min(event["ts"] for event in complete_events(content)) == 0.0


def test_a_file_that_cannot_be_written_does_not_end_the_engine(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    timeline = timeline_of(tmp_path / "gone" / "timeline.json", n_steps=1)
    engine = scripted_engine(timeline=timeline)
    engine.loop.submit([request("a")], 0.0)
    run(engine, timeline, 2)
    assert "could not be written" in caplog.text
    assert engine.loop.counters.steps["decode"] == 1
