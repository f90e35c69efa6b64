"""DoRA and trained biases on a real model, beside each other and the base model: tokens and logits are PEFT's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from lorikeet_engine.build import Engine
from lorikeet_engine.config import MIB
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.ops.native.ops import NativeCpuOps
from lorikeet_engine.scheduling.plan import Phase, PlanRow, SamplingParams, StepPlan
from lorikeet_engine.text.tokenizer import Tokenizer
from tests.engine.equality.adapters.conftest import OpenEngine
from tests.support.closeness import relative_error
from tests.support.ops_cases import NATIVE_LIBRARY
from tests.support.tiny_engine import BASE, BLOCK, TENANT, TinyBench, answers
from tests.support.tiny_models import load_adapted_oracle, load_oracle, oracle_logits, save_adapter

pytestmark = pytest.mark.slow

TOLERANCE = 2e-5  # of the norm of float32 logits, over the vocabulary
N_TOKENS = 16
ADAPTERS: dict[str, dict[str, Any]] = {
    "dora": {"r": 16, "lora_alpha": 32, "use_dora": True, "target_modules": "all-linear"},
    "dora_rslora": {"r": 8, "use_rslora": True, "use_dora": True, "target_modules": ["q_proj", "v_proj", "down_proj"]},
    "lora_bias": {"r": 8, "lora_alpha": 16, "lora_bias": True, "target_modules": "all-linear"},
}
PROMPTS = ("The sea is", "Once upon a time there was", "To make tea, first", "Snow falls when")


def logits_of(engine: Engine, adapter: AdapterKey | None, tokens: Sequence[int]) -> torch.Tensor:
    """After the last token, by an adapter that is in the arena."""
    row = PlanRow(
        request_id="r",
        phase=Phase.PREFILL,
        token_ids=tuple(tokens),
        start=0,
        block_table=tuple(range(1, 1 + -(-len(tokens) // BLOCK))),
        adapter=adapter,
        extent=engine.loop.residency.base(adapter) if adapter else -1,
        samples=True,
        sampling=SamplingParams(),
        n_generated=0,
    )
    return engine.runner.logits(StepPlan(0, (row,)))[0]


def test_dora_and_biases_in_one_batch_are_answered_as_peft_answers_them(
    embedded_model_dir: Path, tmp_path: Path, open_engine: OpenEngine
) -> None:
    """Every token is the likeliest by PEFT's own logits after the tokens before it."""
    adapters = {
        name: save_adapter(embedded_model_dir, tmp_path / name, strength=0.03, **options)
        for name, options in ADAPTERS.items()
    }
    bench = TinyBench(embedded_model_dir, tmp_path / "store", NativeCpuOps(NATIVE_LIBRARY), adapters)
    engine = open_engine(bench, n_blocks=200, adapter_pool_bytes=64 * MIB)
    tokenizer = Tokenizer(embedded_model_dir)
    prompts = {name: tokenizer.encode(text) for name, text in zip((*ADAPTERS, BASE), PROMPTS, strict=True)}
    found = answers(engine, [bench.request(name, prompt, name, N_TOKENS) for name, prompt in prompts.items()])
    for name, prompt in prompts.items():
        oracle = (
            load_oracle(embedded_model_dir) if name == BASE else load_adapted_oracle(embedded_model_dir, adapters[name])
        )
        tokens = [*prompt, *found[name]]
        expected = oracle_logits(oracle, tokens)
        assert expected[len(prompt) - 1 : -1].argmax(-1).tolist() == found[name], name
        key = None if name == BASE else AdapterKey(TENANT, bench.digests[name])
        assert relative_error(logits_of(engine, key, tokens), expected[-1]) <= TOLERANCE, name
