"""Plans beyond tables: estimates, engines for a load, settings that give way, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from lorikeet_engine.cost import StepShape, roofline_seconds
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.planning import prediction
from lorikeet_platform.planning.learning.pace import Pace
from lorikeet_platform.planning.planner import load_of, make_plan
from lorikeet_platform.planning.prediction import Load, predict
from lorikeet_platform.planning.schemas import CapacityPlan, PlanQuestion
from lorikeet_platform.planning.subject import Subject, new_subject, shipped_device, shipped_model


def subject(model: str = "qwen3-8b", device: str = "h200", *, context: int = 1024, **knobs: float) -> Subject:
    return new_subject(model, shipped_model(model), shipped_device(device), knobs, context)


def a_plan(model: str = "qwen3-8b", device: str = "h200", **asked: Any) -> CapacityPlan:
    question = PlanQuestion(**{"prompt_tokens": 512, "output_tokens": 64} | asked)
    load = load_of(question)
    return make_plan(load, subject(model, device, context=load.context, **question.knobs.model_dump(exclude_none=True)))


def refusal(**asked: Any) -> PlatformError:
    with pytest.raises(PlatformError) as caught:
        a_plan(**asked)
    assert caught.value.code == "invalid_value"
    return caught.value


def make_pace(about: Subject) -> Pace:
    return Pace(partial(roofline_seconds, about.cost, about.profile))


def ten_ms(shape: StepShape) -> float:  # the shape says nothing
    return 0.01


def test_an_estimate_is_what_its_steps_add_up_to() -> None:
    load = Load(prompt_tokens=512, output_tokens=64, concurrency=1)
    found = predict(subject(), 8, load, Pace(ten_ms))
    assert found.is_simulated
    assert found.ttft_s == found.itl_s == pytest.approx(0.01)
    assert found.total_s == pytest.approx(0.64)
    assert found.output_tokens_per_s == pytest.approx(100, rel=0.01)


def test_formulas_agree_with_the_simulator_where_both_can_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = Load(prompt_tokens=1024, output_tokens=128, concurrency=8)
    for load in (closed, replace(closed, concurrency=0, requests_per_s=4.0)):
        pace = make_pace(subject())
        simulated = predict(subject(), 64, load, pace)
        with monkeypatch.context() as patch:
            patch.setattr(prediction, "PATIENCE_S", 0.0)
            by_formulas = predict(subject(), 64, load, pace)
        assert (simulated.is_simulated, by_formulas.is_simulated) == (True, False)
        assert by_formulas.ttft_s == pytest.approx(simulated.ttft_s, rel=0.3)
        assert by_formulas.itl_s == pytest.approx(simulated.itl_s, rel=0.3)
        assert by_formulas.output_tokens_per_s == pytest.approx(simulated.output_tokens_per_s, rel=0.3)


def test_no_more_run_at_once_than_there_are_blocks_or_seats_for() -> None:
    load = Load(prompt_tokens=512, output_tokens=64, concurrency=12)
    few_seats = predict(subject(), 5, load, Pace(ten_ms))
    assert few_seats.peak_running == 5
    assert few_seats.ttft_s > predict(subject(), 12, load, Pace(ten_ms)).ttft_s
    tight = subject(kv_cache_bytes=144 * 1024 * 16 * (36 * 4 + 1), max_model_len=1024)
    assert predict(tight, 12, load, Pace(ten_ms)).peak_running == 4


def test_engines_for_a_rate_each_carry_their_share() -> None:
    light, heavy = (a_plan(requests_per_s=rate, knobs={"max_num_seqs": 16}) for rate in (2.0, 200.0))
    assert light.replicas == 1
    assert heavy.replicas is not None
    assert heavy.replicas > 2
    assert heavy.estimate is not None
    assert heavy.estimate.output_tokens_per_s.value == pytest.approx(200.0 * 64 / heavy.replicas)
    assert heavy.estimate.ttft_s.value < 1.0  # no queue that grows


def test_engines_for_clients_seat_all_of_them() -> None:
    assert a_plan(concurrency=9, knobs={"max_num_seqs": 4}).replicas == 3


def test_an_estimate_for_clients_of_several_engines_is_of_one_engines_share() -> None:
    knobs = {"max_num_seqs": 16}
    many, share = a_plan(concurrency=160, knobs=knobs), a_plan(concurrency=16, knobs=knobs)
    assert (many.replicas, share.replicas) == (10, 1)
    assert many.estimate == share.estimate
    assert many.notes[0] == "The estimate is of one engine with 16 of the 160 clients."
    assert a_plan(requests_per_s=200.0, knobs=knobs).notes[1].startswith("The estimate is of one engine with ")


@pytest.mark.parametrize("pool", [1, 1000, 10_000_000])
def test_an_arena_that_holds_no_adapter_is_refused_by_its_setting(pool: int) -> None:
    error = refusal(concurrency=4, adapters={"count": 10, "rank": 16}, knobs={"adapter_pool_bytes": pool})
    assert error.param == "knobs.adapter_pool_bytes"
    assert "hold no adapter of rank 16" in error.message


def test_an_arena_smaller_than_a_grain_is_no_hindrance_without_adapters() -> None:
    assert a_plan(concurrency=4, knobs={"adapter_pool_bytes": 1}).estimate is not None


@pytest.mark.parametrize(
    ("model", "device", "knobs", "seats", "words"),
    [
        ("smollm2-135m", "h200", {}, 256, "the most that is advised on a GPU; "),
        ("qwen3-8b", "rtx4090", {}, None, "65 % of the "),
        (
            "smollm2-135m",
            "cpu2",
            {"max_num_batched_tokens": 64, "kv_cache_bytes": 1 << 30},
            32,
            "max_num_batched_tokens 64 has",
        ),
    ],
)
def test_what_bounds_the_advised_seats_is_said(
    model: str, device: str, knobs: dict[str, Any], seats: int | None, words: str
) -> None:
    plan = a_plan(model, device, concurrency=2, knobs=knobs)
    advised = next(knob for knob in plan.knobs if knob.name == "max_num_seqs")
    assert advised.why.startswith(words)
    assert plan.steps[2].text == advised.why
    if seats is None:
        assert advised.value == int(0.65 * plan.theoretical_concurrency)
    else:
        assert advised.value == seats


def test_a_model_length_that_leaves_no_room_gives_way_to_the_workloads() -> None:
    plan = a_plan("qwen3-8b", "rtx4090", concurrency=2)
    advised = {knob.name: knob.value for knob in plan.knobs}
    assert advised["max_model_len"] == 576
    assert "max_model_len" not in {knob.name for knob in a_plan("qwen3-8b", "h200", concurrency=2).knobs}


def test_a_pool_that_seats_all_is_advised_where_a_host_has_memory_for_it() -> None:
    few = {"kv_cache_bytes": 64 << 20, "max_num_seqs": 64}
    tight = a_plan("smollm2-135m", "cpu2", concurrency=20, knobs=few)
    wanted = next(knob for knob in tight.knobs if knob.name == "kv_cache_bytes")
    assert wanted.why == "seats all 20 requests"
    roomy = a_plan("smollm2-135m", "cpu2", concurrency=20, knobs=few | {"kv_cache_bytes": wanted.value})
    assert next(knob for knob in roomy.knobs if knob.name == "max_num_seqs").value >= 20


def test_a_batch_beyond_which_nothing_is_won_is_named() -> None:
    notes = a_plan("smollm2-135m", "cpu2", concurrency=2).notes
    assert any(note.startswith("More than ") and "favours latency" in note for note in notes)


def test_a_question_without_a_load_or_with_two_is_refused() -> None:
    assert refusal().param == "concurrency"
    assert refusal(concurrency=1, requests_per_s=1.0).param == "concurrency"


def test_a_context_longer_than_the_models_is_refused() -> None:
    error = refusal(concurrency=1, prompt_tokens=40_960)
    assert error.param == "prompt_tokens"
    assert "40960" in error.message


@pytest.mark.parametrize(
    ("knobs", "param"),
    [
        ({"block_size": 17}, "knobs.block_size"),
        ({"max_num_batched_tokens": 8, "max_num_seqs": 8}, "knobs.max_num_batched_tokens"),
        ({"kv_cache_bytes": 1000}, "knobs.kv_cache_bytes"),
        ({"gpu_memory_utilization": 0.05}, "knobs.gpu_memory_utilization"),
    ],
)
def test_settings_that_no_engine_would_start_with_are_refused_by_name(knobs: dict[str, Any], param: str) -> None:
    assert refusal(concurrency=1, knobs=knobs).param == param


def test_a_gpus_setting_is_refused_on_a_cpu() -> None:
    error = refusal(model="smollm2-135m", device="cpu2", concurrency=1, knobs={"gpu_memory_utilization": 0.5})
    assert error.param == "knobs.gpu_memory_utilization"


def test_an_unknown_module_is_refused() -> None:
    adapters = {"count": 2, "rank": 8, "modules": ["q_proj", "lm_head"]}
    assert refusal(concurrency=1, adapters=adapters).param == "adapters.modules"
