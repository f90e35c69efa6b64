"""A profiled model computes the same tokens, and every op of every layer stands in its timeline under its name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from lorikeet_engine.execution.profiled_ops import ProfiledOps
from lorikeet_engine.execution.runner import ModelRunner
from lorikeet_engine.ops.interface import Ops
from lorikeet_engine.profiling.step_timeline import StepTimeline
from lorikeet_engine.scheduling.plan import StepPlan
from tests.support.device import BASE, Driven, generate, open_runner, random_ids
from tests.support.ops_cases import BACKENDS
from tests.support.tiny_models import VOCAB, pack_adapter, save_adapter
from tests.support.trace_events import assert_nested, complete_events, inside, named

N_STEPS = 3
PLACE = 40
ATTENTION = ["qkv", "lora qkv", "rotary_write_kv", "attention", "o", "lora o"]
MLP = ["gate_up", "lora gate_up", "silu_mul", "down", "lora down"]
LAYER = ["attention_norm", *ATTENTION, "mlp_norm", *MLP]
LAST = ["sampled rows", "sampled rows", "final_norm", "head"]


@pytest.fixture(params=["cpu", "native"])
def ops(request: pytest.FixtureRequest) -> Ops:
    return BACKENDS[request.param]()


@pytest.fixture(scope="module")
def adapter_dir(model_dir: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_adapter(
        model_dir("llama"), tmp_path_factory.mktemp("adapter"), seed=3, r=8, target_modules="all-linear"
    )


@contextmanager
def one_turn(timeline: StepTimeline) -> Iterator[None]:
    with timeline.turn():
        timeline.computes(StepPlan(1, ()), "any")
        yield


def tokens(runner: ModelRunner, adapter_dir: Path) -> dict[str, list[int]]:
    table = runner.spec.module_table("tiny")
    runner.write_extent(PLACE, pack_adapter(adapter_dir, table, torch.float32))
    sequences = [
        Driven(name, random_ids(11, vocab=VOCAB, seed=seed), blocks, extent)
        for seed, (name, blocks, extent) in enumerate([("base", (1, 2), BASE), ("adapted", (3, 4), PLACE)])
    ]
    return generate(runner, sequences, N_STEPS)


def profile(
    directory: Path, ops: Ops, path: Path, adapter_dir: Path
) -> tuple[dict[str, list[int]], list[dict[str, Any]]]:
    """What was generated, and the spans of all steps in one turn."""
    timeline = StepTimeline(path, n_steps=1, n_warm_up=0)
    with one_turn(timeline):
        generated = tokens(open_runner(directory, ops=ops, timeline=timeline), adapter_dir)
    return generated, complete_events(json.loads(path.read_text()))


def test_every_op_of_every_layer_is_timed_inside_its_forward_pass(
    ops: Ops, model_dir: Callable[[str], Path], adapter_dir: Path, tmp_path: Path
) -> None:
    generated, events = profile(model_dir("llama"), ops, tmp_path / "timeline.json", adapter_dir)
    assert generated == tokens(open_runner(model_dir("llama"), ops=ops), adapter_dir)
    assert_nested(events)
    forwards = [event for event in events if event["name"] == "forward"]
    assert len(forwards) == N_STEPS
    for forward in forwards:
        within = inside(forward, events)
        names = [event["name"] for event in within if event["cat"] == "op"]
        assert names == ["embedding", "plan_attention", *LAYER, *LAYER, *LAST]
        for layer in range(2):
            outer = named(within, f"layer {layer}")
            assert [event["name"] for event in inside(outer, within)] == LAYER
            assert {event["args"]["layer"] for event in inside(outer, within)} == {layer}
    phases = [event["name"] for event in events if event["cat"] == "phase"]
    assert phases == ["copy blocks", "stage", "forward", "wait for the device", "sample"] * N_STEPS
    sample = named(events, "sample")
    assert [event["name"] for event in inside(sample, events)] == ["greedy"]


def test_norms_of_queries_and_keys_have_names_of_their_own(
    model_dir: Callable[[str], Path], adapter_dir: Path, tmp_path: Path
) -> None:
    directory = model_dir("qwen3")
    timeline = StepTimeline(tmp_path / "timeline.json", n_steps=1, n_warm_up=0)
    with one_turn(timeline):
        generate(open_runner(directory, timeline=timeline), [Driven("a", [5, 6, 7], (1,))], 1)
    events = complete_events(json.loads((tmp_path / "timeline.json").read_text()))
    layer = inside(named(events, "layer 1"), events)
    assert [event["name"] for event in layer][:4] == ["attention_norm", "qkv", "q_norm", "k_norm"]


def test_a_profiled_step_is_never_recorded(ops: Ops, model_dir: Callable[[str], Path], tmp_path: Path) -> None:
    runner = open_runner(model_dir("llama"), ops=ops, timeline=StepTimeline(tmp_path / "timeline.json", n_steps=1))
    assert isinstance(runner._ops, ProfiledOps)
    assert runner._ops.record(lambda: torch.zeros(1)) is None
