"""Eight adapters of eight kinds in the same steps, in an arena that holds a few of them: every answer is PEFT's own.

Greedy tokens are equal, in float32 on both sides.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from lorikeet_engine.ops.cuda import CudaOps
from lorikeet_engine.ops.interface import Ops
from lorikeet_engine.scheduling.plan import StepPlan, StepResult
from lorikeet_engine.scheduling.request import Request
from tests.engine.equality.adapters.conftest import OpenEngine
from tests.support.device import random_ids
from tests.support.ops_cases import BACKENDS
from tests.support.peft_adapters import OPTIONS
from tests.support.tiny_engine import BASE, TinyBench, answers
from tests.support.tiny_models import VOCAB, save_adapter, save_model

KINDS = (
    "all_linear",
    "some_layers",
    "rslora_64",
    "patterns",
    "mixed_ranks",
    "lora_bias_rslora",
    "dora",
    "dora_rslora",
)
N_TOKENS = 8


def make_bench(model: str, folder: Path, ops: Ops) -> TinyBench:
    directory = save_model(model, folder / "model")
    adapters = {
        kind: save_adapter(directory, folder / kind, seed=seed, **OPTIONS[kind]) for seed, kind in enumerate(KINDS)
    }
    return TinyBench(directory, folder / "store", ops, adapters)


def requests_of(
    bench: TinyBench, n_rounds: int, n_tokens: int = N_TOKENS
) -> tuple[list[Request], dict[str, list[int]]]:
    """One request for each adapter and one for the base model, in a new order every round; and their answers."""
    requests, expected, rng = [], {}, random.Random(n_rounds)
    for turn in range(n_rounds):
        for name in rng.sample([*KINDS, BASE], len(KINDS) + 1):
            prompt = random_ids(rng.randint(3, 12), vocab=VOCAB, seed=rng.randrange(3))
            requests.append(bench.request(f"{turn} {name}", prompt, name, n_tokens))
            expected[requests[-1].request_id] = bench.answer(prompt, name, n_tokens)
    return requests, expected


@pytest.fixture(
    scope="module", params=[(model, ops) for model in ("llama", "qwen2") for ops in ("cpu", "native")], ids=str
)
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TinyBench:
    model, backend = request.param
    return make_bench(model, tmp_path_factory.mktemp(f"{model}-{backend}"), BACKENDS[backend]())


def test_all_kinds_share_their_steps(bench: TinyBench, open_engine: OpenEngine) -> None:
    engine = open_engine(bench, max_num_seqs=24, max_num_batched_tokens=128)
    n_together, execute = [0], engine.runner.execute

    def counted(plan: StepPlan) -> StepResult:
        n_together.append(len({row.adapter for row in plan.rows if row.adapter}))
        return execute(plan)

    engine.runner.execute = counted  # type: ignore[method-assign]
    for n_rounds in (1, 2):  # all are loaded when the second begins
        requests, expected = requests_of(bench, n_rounds)
        assert answers(engine, requests, per_step=len(requests)) == expected
    assert max(n_together) == len(KINDS)


def test_all_kinds_come_and_go_in_an_arena_that_holds_the_two_largest(
    bench: TinyBench, open_engine: OpenEngine
) -> None:
    """Packed anew after the host has dropped them, and moved together where they leave gaps."""
    sizes = sorted(bench.serving_bytes.values())
    room = sizes[-1] + sizes[-2]
    engine = open_engine(
        bench, adapter_pool_bytes=room, host_adapter_cache_bytes=sizes[-1], max_num_seqs=6, max_adapters_per_step=3
    )
    requests, expected = requests_of(bench, 4)
    assert answers(engine, requests) == expected
    assert engine.loop.residency.evictions["room"] > 2
    engine.loop.residency.audit()


@pytest.mark.slow
def test_the_kernels_of_a_gpu_serve_all_kinds_together(tmp_path: Path, open_engine: OpenEngine) -> None:
    """Interpreted: a second a step."""
    bench = make_bench("qwen2", tmp_path, CudaOps(device="cpu", max_tokens=64, max_rank=64))
    engine = open_engine(bench, max_num_seqs=16, max_num_batched_tokens=64)
    requests, expected = requests_of(bench, 1, 3)
    assert answers(engine, requests) == expected
