"""The engine on the GPU's kernels, interpreted, on a device that works late: every answer is transformers' and PEFT's.

A small random model and few steps, since the interpreter takes a second a step. What is not a kernel is what a GPU
gets: pinned words, lanes and fences, steps that are left with the device. Only the streams themselves are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lorikeet_engine.build import Engine
from lorikeet_engine.execution.placement import beside_the_host
from lorikeet_engine.ops.cuda import CudaOps, PageMover
from tests.support.asynchronous_device import LateLanes
from tests.support.device import random_ids
from tests.support.tiny_engine import BLOCK, TinyBench, answers
from tests.support.tiny_models import VOCAB, save_adapter, save_model

pytestmark = pytest.mark.slow

ADAPTERS: dict[str, dict[str, Any]] = {
    "all": {"r": 8, "target_modules": "all-linear"},
    "few": {"r": 3, "lora_alpha": 7, "target_modules": ["q_proj", "v_proj", "down_proj"]},
    "dora": {"r": 4, "use_dora": True, "target_modules": ["q_proj", "o_proj", "up_proj"]},
    "biased": {"r": 2, "lora_bias": True, "target_modules": ["k_proj", "down_proj"]},
}


@pytest.fixture(scope="module", params=["llama", "qwen2_window_in_upper_layers"])
def small(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TinyBench:
    folder = tmp_path_factory.mktemp(request.param)
    directory = save_model(request.param, folder / "model")
    adapters = {
        name: save_adapter(directory, folder / name, seed=seed, **options)
        for seed, (name, options) in enumerate(ADAPTERS.items())
    }
    return TinyBench(directory, folder / "store", CudaOps(device="cpu", max_tokens=64, max_rank=64), adapters)


def open_late(small: TinyBench, **settings: Any) -> Engine:
    """An engine on a device that works late."""
    return small.open(placement=beside_the_host("cpu", LateLanes(1), PageMover), **settings)


@pytest.fixture
def opened() -> Iterator[Callable[[Engine], Engine]]:
    engines: list[Engine] = []

    def keep(engine: Engine) -> Engine:
        engines.append(engine)
        return engine

    yield keep
    for engine in engines:
        engine.close()


def test_adapters_and_the_base_model_in_one_batch_with_chunks_and_a_shared_prefix(
    small: TinyBench, opened: Callable[[Engine], Engine]
) -> None:
    shared = random_ids(2 * BLOCK, vocab=VOCAB, seed=1)
    asked = {
        "long": (random_ids(21, vocab=VOCAB, seed=2), "all"),
        "first": (shared + random_ids(3, vocab=VOCAB, seed=3), "base"),
        "few": (random_ids(5, vocab=VOCAB, seed=4), "few"),
        "dora": (random_ids(6, vocab=VOCAB, seed=6), "dora"),
        "biased": (random_ids(7, vocab=VOCAB, seed=7), "biased"),
        "second": (shared + random_ids(4, vocab=VOCAB, seed=5), "base"),
    }
    engine = opened(open_late(small, n_blocks=40))
    found = answers(engine, [small.request(name, *what) for name, what in asked.items()])
    assert found == {name: small.answer(*what) for name, what in asked.items()}


@pytest.mark.parametrize("small", ["llama"], indirect=True)
def test_requests_that_swap_each_other_out(small: TinyBench, opened: Callable[[Engine], Engine]) -> None:
    asked = {f"r{seed}": (random_ids(BLOCK - 2, vocab=VOCAB, seed=seed), "base", 20) for seed in range(4)}
    block_bytes = small.block_bytes
    engine = opened(
        open_late(small, n_blocks=9, swap_space=8 * block_bytes, preemption="swap", enable_prefix_caching=False)
    )
    found = answers(engine, [small.request(name, *what) for name, what in asked.items()])
    assert found == {name: small.answer(*what) for name, what in asked.items()}
    assert engine.loop.scheduler.counters.swap_bytes["in"] > 0
