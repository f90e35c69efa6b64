"""Published figures (O1) through the planner: the same numbers come out where an operator would read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lorikeet_engine.config import GIB, MIB
from lorikeet_engine.simulation.shipped import MODELS
from lorikeet_platform.planning.planner import load_of, make_plan
from lorikeet_platform.planning.schemas import CapacityPlan, PlanQuestion
from lorikeet_platform.planning.subject import new_subject, shipped_device, shipped_model

KIB = 1024


def a_plan(model: str, device: str = "h200", **asked: Any) -> CapacityPlan:
    question = PlanQuestion(**{"prompt_tokens": 1024, "output_tokens": 256, "concurrency": 2} | asked)
    load = load_of(question)
    knobs = question.knobs.model_dump(exclude_none=True)
    return make_plan(load, new_subject(model, shipped_model(model), shipped_device(device), knobs, load.context))


def changed(model: str, folder: Path, **fields: Any) -> str:
    """A shipped model's configuration with other values."""
    path = folder / f"{model}.json"
    path.write_text(json.dumps(json.loads((MODELS / f"{model}.json").read_text()) | fields))
    return str(path)


def test_o1_1_the_concurrency_table_of_a_llama_of_8b(tmp_path: Path) -> None:
    plan = a_plan(changed("llama-3-8b", tmp_path, max_position_embeddings=131_072), concurrency=1)
    table = plan.concurrency_table
    assert table.concurrencies == [1, 8, 32]
    rows = dict(zip(table.contexts, table.cells, strict=True))
    for context, one in ((1024, 128 * MIB), (4096, 512 * MIB), (32_768, 4 * GIB), (131_072, 16 * GIB)):
        assert [cell.bytes for cell in rows[context]] == [one, 8 * one, 32 * one]
    assert rows[32_768][2].bytes == 128 * GIB
    assert [cell.fits for cell in rows[32_768]] == [True, True, False]  # 128 GiB are more than an H200 has left


def test_o1_2_kv_of_qwen2_5_7b_and_of_its_mha_equivalent(tmp_path: Path) -> None:
    settings = {"kv_cache_bytes": 86_864 * 56 * KIB + 16 * 56 * KIB, "adapter_pool_bytes": 256 * MIB}
    plan = a_plan("qwen2.5-7b", "rtx4090", prompt_tokens=768, knobs=settings)
    assert plan.request_kv_bytes == 1024 * 56 * KIB
    mha = changed("qwen2.5-7b", tmp_path, num_key_value_heads=28)
    settings |= {"kv_cache_bytes": 12_410 * 392 * KIB, "block_size": 1}
    at_519 = a_plan(mha, "h200", prompt_tokens=519, knobs=settings)
    assert at_519.request_kv_bytes == (519 + 256) * 392 * KIB
    assert at_519.pool_tokens == 86_864 * 56 // 392 == 12_409
    assert at_519.theoretical_concurrency >= 16
    assert a_plan(mha, "h200", prompt_tokens=520, knobs=settings).theoretical_concurrency < 16


def test_o1_3_a_pool_of_4_64_gib_holds_what_the_published_log_says_in_whole_blocks() -> None:
    pool = int(4.64 * GIB)
    assert pool // (56 * KIB) // 10 * 10 == 86_880  # by arithmetic, without blocks
    settings = {"kv_cache_bytes": pool, "adapter_pool_bytes": 256 * MIB, "block_size": 16}
    plan = a_plan("qwen2.5-7b", "rtx4090", knobs=settings)
    assert plan.pool_tokens == 86_864
    rows = {row.name: row.bytes for row in plan.memory}
    assert rows["KV pool"] == pool // (16 * 56 * KIB) * (16 * 56 * KIB)


def test_o1_4_reads_for_a_token_by_batch_and_the_batch_that_balances_them() -> None:
    plan = a_plan("qwen3-8b", prompt_tokens=1792)
    reads = {point.batch: point.read_bytes_per_token / GIB for point in plan.curve}
    for batch, published in ((1, 14.38), (16, 1.16), (32, 0.72), (64, 0.50)):
        assert reads[batch] == pytest.approx(published, abs=0.005)
    assert reads[1] / reads[64] == pytest.approx(29, abs=0.5)
    assert plan.balanced_batch == pytest.approx(50, abs=0.5)
    assert [point.itl_s for point in plan.curve] == sorted(point.itl_s for point in plan.curve)


def test_o1_7_both_ledgers_of_a_hundred_adapters() -> None:
    plan = a_plan("qwen3-8b", prompt_tokens=7936, adapters={"count": 100, "rank": 16})
    lora = plan.lora
    assert lora is not None
    assert lora.adapter_bytes / MIB == pytest.approx(14.6, abs=0.05)
    assert lora.all_bytes / GIB == pytest.approx(1.43, abs=0.005)
    assert lora.private_kv_bytes / GIB == pytest.approx(112.5, abs=0.05)
    assert (lora.bound_by, lora.resident) == ("kv", 100)


def test_an_arena_too_small_for_the_contexts_binds_and_a_larger_one_is_advised() -> None:
    adapters = {"count": 100, "rank": 16}
    plan = a_plan("qwen3-8b", adapters=adapters, knobs={"adapter_pool_bytes": 256 * MIB})
    assert plan.lora is not None
    assert (plan.lora.bound_by, plan.lora.resident) == ("adapters", 17)
    advised = {knob.name: knob.value for knob in plan.knobs}["adapter_pool_bytes"]
    again = a_plan("qwen3-8b", adapters=adapters, knobs={"adapter_pool_bytes": advised})
    assert again.lora is not None
    assert again.lora.resident == 100


def test_o1_12_the_sizing_order_with_its_numbers() -> None:
    plan = a_plan("qwen3-8b", prompt_tokens=2048, concurrency=32)
    assert [step.title for step in plan.steps] == [
        "KV per request",
        "Theoretical concurrency",
        "max_num_seqs",
        "max_num_batched_tokens",
    ]
    assert plan.steps[0].value == "324.00 MiB"
    assert plan.theoretical_concurrency == pytest.approx(plan.pool_tokens / 2304, abs=0.01)
    seats = next(knob for knob in plan.knobs if knob.name == "max_num_seqs")
    assert 0.6 <= seats.value / plan.theoretical_concurrency <= 0.7
    assert (plan.steps[2].value, seats.setting) == (f"{seats.value}", f"LORIKEET_ENGINE__MAX_NUM_SEQS={seats.value}")


def test_the_memory_table_adds_up_on_every_device() -> None:
    for model, device in (("qwen3-8b", "h200"), ("qwen2.5-7b", "rtx4090"), ("smollm2-135m", "cpu2")):
        plan = a_plan(model, device)
        assert sum(row.bytes for row in plan.memory) == plan.available_bytes
