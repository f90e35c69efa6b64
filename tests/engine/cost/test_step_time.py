"""The step-time model learns what steps take, follows changes, and stays sane."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf, isfinite, nan
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lorikeet_engine.cost import DEVICES, DeviceProfile, ModelCost, StepShape, load_profile, roofline_seconds
from lorikeet_engine.step_time import StepTimeModel
from tests.engine.cost.published_models import H200, LLAMA3_COST, QWEN25_COST, RTX_4090

CPU = load_profile(DEVICES / "cpu2.json")
SMALL = ModelCost(
    layer_params=106_000_000,
    head_params=28_000_000,
    attention_flops_per_pair=69_120,
    kv_bytes_per_token=23_040,
    layer_bytes=212_000_000,
    head_bytes=57_000_000,
)
TRUE = (0.02, 4e-4, 3e-7, 2e-6, 5e-10)


def true_seconds(shape: StepShape) -> float:
    fixed, token, pair, context, lora = TRUE
    tokens = shape.n_decode + shape.n_prefill
    return (
        fixed + token * tokens + pair * shape.prefill_pairs + context * shape.decode_context + lora * shape.lora_bytes
    )


def decode(rows: int, context: int) -> StepShape:
    return StepShape(n_decode=rows, decode_context=rows * context, n_sampled=rows)


def prompt(n: int, context: int = 0) -> StepShape:
    shape = StepShape()
    shape.add_prefill(n, context, samples=True)
    return shape


def traffic(seed: int, n_steps: int) -> Iterator[StepShape]:
    random = Random(seed)
    for _ in range(n_steps):
        shape = decode(random.randrange(32), random.randrange(64, 2048))
        if random.random() < 0.4:
            shape.add_prefill(random.choice((32, 64, 256, 480)), random.randrange(0, 2048, 32), samples=True)
        shape.lora_bytes = random.randrange(3) * 20_000_000
        yield shape


def taught(seconds: Callable[[StepShape], float] = true_seconds, n_steps: int = 2000) -> StepTimeModel:
    model = StepTimeModel(SMALL, CPU)
    for shape in traffic(1, n_steps):
        model.observe(shape, seconds(shape))
    return model


@pytest.mark.parametrize(
    ("cost", "profile"), [(QWEN25_COST, RTX_4090), (LLAMA3_COST, H200), (SMALL, CPU)], ids=["4090", "h200", "cpu"]
)
@pytest.mark.parametrize(
    "shape", [decode(1, 128), decode(16, 512), decode(64, 1024), prompt(512), prompt(2048), prompt(512, 2048)]
)
def test_an_untaught_model_is_near_the_roofline(cost: ModelCost, profile: DeviceProfile, shape: StepShape) -> None:
    model = StepTimeModel(cost, profile)
    assert model.predict(shape) == pytest.approx(roofline_seconds(cost, profile, shape), rel=0.35)


def test_it_recovers_the_coefficients_behind_exact_times() -> None:
    model = taught()
    assert model.coefficients == pytest.approx(TRUE, rel=0.02)
    assert model.error < 0.01


def test_it_recovers_them_through_noise() -> None:
    random = Random(2)
    model = taught(lambda shape: true_seconds(shape) * random.lognormvariate(0, 0.1), n_steps=4000)
    for shape in (decode(8, 500), decode(32, 2000), prompt(480), prompt(256, 1024)):
        assert model.predict(shape) == pytest.approx(true_seconds(shape), rel=0.06)
    assert 0.04 < model.error < 0.15


def test_it_follows_a_machine_that_slows_down_to_a_third() -> None:
    model = taught()
    for shape in traffic(3, 1500):
        model.observe(shape, 3 * true_seconds(shape))
    for shape in (decode(8, 500), prompt(480)):
        assert model.predict(shape) == pytest.approx(3 * true_seconds(shape), rel=0.05)


def test_hours_of_decoding_do_not_make_it_forget_what_prompts_take() -> None:
    model = taught()
    for i in range(20_000):
        shape = decode(4, 200 + i % 50)
        model.observe(shape, true_seconds(shape))
    assert model.predict(prompt(480)) == pytest.approx(true_seconds(prompt(480)), rel=0.02)


def test_one_step_that_took_a_hundred_times_too_long_changes_little() -> None:
    model = taught()
    before = model.predict(decode(8, 500))
    model.observe(decode(8, 500), 100 * before)
    assert model.predict(decode(8, 500)) == pytest.approx(before, rel=0.05)


@pytest.mark.parametrize("seconds", [0.0, -1.0, nan, inf])
def test_what_is_no_duration_teaches_nothing(seconds: float) -> None:
    model = taught(n_steps=10)
    before = model.coefficients
    model.observe(decode(8, 500), seconds)
    assert model.coefficients == before


OBSERVED = st.tuples(
    st.builds(
        StepShape,
        n_decode=st.integers(0, 512),
        n_prefill=st.integers(0, 16384),
        prefill_pairs=st.integers(0, 1 << 32),
        decode_context=st.integers(0, 1 << 24),
        lora_bytes=st.integers(0, 1 << 34),
    ),
    st.floats(1e-6, 1e4),
)


@settings(max_examples=50)
@given(st.lists(OBSERVED, max_size=60))
def test_whatever_it_is_shown_it_never_predicts_a_negative_time(observed: list[tuple[StepShape, float]]) -> None:
    model = StepTimeModel(SMALL, CPU)
    for shape, seconds in observed:
        model.observe(shape, seconds)
        assert 0 <= model.predict(shape) < inf
    assert all(value >= 0 and isfinite(value) for value in model.coefficients)


def test_fifty_thousand_equal_steps_and_then_wild_ones_leave_it_finite_and_teachable() -> None:
    model = StepTimeModel(SMALL, CPU)
    random = Random(4)
    for _ in range(50_000):
        model.observe(decode(1, 100), 0.03)
    assert model.predict(decode(1, 100)) == pytest.approx(0.03, rel=0.001)
    for _ in range(5_000):
        model.observe(decode(1, 100), random.choice((1e-9, 1e-3, 1e3)))
    for shape in traffic(5, 6000):
        model.observe(shape, true_seconds(shape))
    assert model.coefficients == pytest.approx(TRUE, rel=0.05)
