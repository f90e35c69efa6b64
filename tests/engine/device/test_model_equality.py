"""Logits of every covered architecture against transformers, in float32.

Tolerance: norm of the error over norm of the logits at most 1e-5; both sides sum in float32 in another order.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from lorikeet_engine.ops.reference import ReferenceOps
from tests.support.closeness import relative_error
from tests.support.device import Driven, open_runner, plan_of, random_ids
from tests.support.ops_cases import BACKENDS
from tests.support.tiny_models import CONFIGS, VOCAB, load_oracle, oracle_logits

TOLERANCE = 1e-5
CPU_BACKENDS = ("cpu", "native")
ModelDir = Callable[[str], Path]


@pytest.mark.parametrize("name", list(CONFIGS))
@pytest.mark.parametrize("backend", CPU_BACKENDS)
def test_whole_prompt_chunks_and_decode_equal_transformers(model_dir: ModelDir, name: str, backend: str) -> None:
    runner, oracle = open_runner(model_dir(name), ops=BACKENDS[backend]()), load_oracle(model_dir(name))
    tokens = random_ids(60, vocab=VOCAB, seed=1)
    expected = oracle_logits(oracle, tokens)
    whole = Driven("whole", tokens[:50], tuple(range(1, 9)))
    assert relative_error(runner.logits(plan_of([whole.row()]))[0], expected[49]) <= TOLERANCE
    for position in range(50, 60):
        whole.generated.append(tokens[position])
        assert relative_error(runner.logits(plan_of([whole.row()]))[0], expected[position]) <= TOLERANCE
    chunked = Driven("chunked", tokens[:50], (20, 31, 12, 40, 11, 33, 25))
    for n_tokens in (1, 7, 8, 17, 1, 9):
        assert runner.logits(plan_of([chunked.row(n_tokens)])).shape == (0, VOCAB)
    assert relative_error(runner.logits(plan_of([chunked.row()]))[0], expected[49]) <= TOLERANCE


@pytest.mark.parametrize("name", ["llama", "qwen2_window_in_upper_layers", "smollm3"])
@pytest.mark.parametrize("backend", CPU_BACKENDS)
def test_requests_of_every_phase_share_a_step(model_dir: ModelDir, name: str, backend: str) -> None:
    runner, oracle = open_runner(model_dir(name), ops=BACKENDS[backend]()), load_oracle(model_dir(name))
    prompts = {n: random_ids(n, vocab=VOCAB, seed=n) for n in (1, 8, 23, 40)}
    driven = {
        n: Driven(str(n), tokens, tuple(range(1 + 10 * i, 8 + 10 * i))) for i, (n, tokens) in enumerate(prompts.items())
    }
    for n in (1, 8):
        runner.logits(plan_of([driven[n].row()]))
        driven[n].generated.append(3)
    runner.logits(plan_of([driven[23].row(9)]))
    logits = runner.logits(plan_of([driven[n].row() for n in (1, 8, 23, 40)]))
    for found, n in zip(logits, (1, 8, 23, 40), strict=True):
        tokens = prompts[n] + driven[n].generated
        assert relative_error(found, oracle_logits(oracle, tokens)[-1]) <= TOLERANCE


def test_the_reference_backend_runs_the_whole_model(model_dir: ModelDir) -> None:
    runner, oracle = open_runner(model_dir("qwen3"), ops=ReferenceOps()), load_oracle(model_dir("qwen3"))
    tokens = random_ids(20, vocab=VOCAB, seed=2)
    found = runner.logits(plan_of([Driven("r", tokens, (1, 2, 3)).row()]))[0]
    assert relative_error(found, oracle_logits(oracle, tokens)[-1]) <= TOLERANCE


def test_bf16_stays_near_float32(model_dir: ModelDir) -> None:
    """Rounding of 2^-9 in every operation of two layers; far below what a wrong operation does (of order 1)."""
    runner, oracle = open_runner(model_dir("llama"), dtype="bfloat16"), load_oracle(model_dir("llama"))
    tokens = random_ids(30, vocab=VOCAB, seed=2)
    found = runner.logits(plan_of([Driven("r", tokens, (1, 2, 3, 4)).row()]))[0]
    assert found.dtype == torch.float32
    assert relative_error(found, oracle_logits(oracle, tokens)[-1]) <= 5e-2


def test_blocks_reused_after_another_request_leave_no_trace(model_dir: ModelDir) -> None:
    runner, oracle = open_runner(model_dir("llama")), load_oracle(model_dir("llama"))
    for pages in runner.kv.layers:
        pages.k[1:].fill_(float("nan"))
        pages.v[1:].fill_(float("nan"))
    tokens = random_ids(13, vocab=VOCAB, seed=4)
    request = Driven("r", tokens[:12], (5, 3))
    runner.logits(plan_of([request.row()]))
    request.generated.append(tokens[12])
    found = runner.logits(plan_of([request.row()]))[0]
    assert relative_error(found, oracle_logits(oracle, tokens)[-1]) <= TOLERANCE


@pytest.mark.parametrize(
    ("blocks", "reason"), [((1,), "do not hold"), ((1, 0), "outside"), ((1, 64), "outside"), ((1, -1), "outside")]
)
def test_a_block_table_that_would_corrupt_others_is_refused(
    model_dir: ModelDir, blocks: tuple[int, ...], reason: str
) -> None:
    runner = open_runner(model_dir("llama"))
    with pytest.raises(ValueError, match=reason):
        runner.logits(plan_of([Driven("r", [1] * 12, blocks).row()]))
