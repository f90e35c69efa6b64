"""From a model and a memory to how many requests may run: O1.3 and O1.12, by what the engine itself is sized with."""

from __future__ import annotations

from pathlib import Path

import pytest

from lorikeet_engine.config import EngineConfig
from lorikeet_engine.cost import blocks_for, suggested_max_num_seqs, theoretical_concurrency
from lorikeet_engine.memory.kv.manager import KvManager
from lorikeet_engine.memory.ledger import MemoryState
from lorikeet_engine.sizing.memory_budget import MemoryBudget, plan_memory
from tests.engine.cost.published_models import GIB, MIB, QWEN25_7B, QWEN25_COST, QWEN25_POOL_TOKENS

LONGEST = 4096 + 256


def sized(kv_cache_bytes: int, *, max_num_seqs: int = 0) -> MemoryBudget:
    """An RTX 4090's table for Qwen2.5-7B in bf16."""
    config = EngineConfig(
        model_dir=Path("unread"),
        model_name="m",
        store_url="unread",
        endpoint="ipc://unused",
        device="cuda",
        kv_cache_bytes=kv_cache_bytes,
        max_model_len=LONGEST,
        adapter_pool_bytes=64 * MIB,
        max_num_seqs=max_num_seqs,
    )
    embedding_bytes = QWEN25_7B.vocab * QWEN25_7B.hidden * 2
    return plan_memory(
        config,
        QWEN25_7B,
        itemsize=2,
        weights_bytes=QWEN25_COST.weights_bytes + embedding_bytes,
        available_bytes=24 * GIB,
        host_bytes=64 * GIB,
    )


def manager_of(budget: MemoryBudget) -> KvManager:
    return KvManager(n_blocks=budget.n_blocks, block_size=budget.block_size, block_bytes=budget.block_bytes)


def test_o1_3_the_pool_of_4_64_gib_is_reported_to_the_block_by_table_manager_and_ledger() -> None:
    budget = sized(int(4.64 * GIB))
    manager = manager_of(budget)
    assert budget.block_size == 16
    assert budget.n_blocks == 5_430
    assert manager.n_usable == 5_429
    assert manager.n_usable * manager.block_size == QWEN25_POOL_TOKENS
    assert manager.ledger.capacity == manager.ledger[MemoryState.FREE] == 5_429 * budget.block_bytes
    assert budget.kv_bytes == 5_430 * budget.block_bytes <= int(4.64 * GIB)


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_o1_3_a_byte_less_than_a_block_is_no_block(more: int) -> None:
    block_bytes = sized(int(4.64 * GIB)).block_bytes
    assert sized(5_430 * block_bytes + more).n_blocks == (5_429 if more < 0 else 5_430)


def test_o1_12_sizing_goes_from_a_requests_kv_to_what_the_pool_holds_to_the_seats() -> None:
    budget = sized(int(4.64 * GIB))
    assert budget.request_bytes == blocks_for(LONGEST, 16) * 16 * (56 << 10) == 238 * MIB  # 1. of one request
    pool_bytes = (budget.n_blocks - 1) * budget.block_bytes
    assert budget.concurrency == pytest.approx(pool_bytes / budget.request_bytes)  # 2. remaining memory over that
    assert budget.concurrency == pytest.approx(19.96, abs=0.005)
    assert budget.suggested_max_num_seqs == suggested_max_num_seqs(budget.concurrency) == 12  # 3. 60 to 70 percent
    assert budget.max_num_seqs == 12


def test_o1_12_the_larger_pool_of_6_12_gib_holds_26_instead_of_20() -> None:
    small, large = (sized(int(gib * GIB)) for gib in (4.64, 6.12))
    assert (large.n_blocks - 1) * 16 == pytest.approx(114_600, rel=0.001)
    assert round(small.concurrency) == 20
    assert int(large.concurrency) == 26


def test_o1_12_the_manager_admits_exactly_the_theoretical_concurrency() -> None:
    """Nineteen requests of the longest kind, and the twentieth does not fit."""
    budget = sized(int(4.64 * GIB))
    manager, needed = manager_of(budget), blocks_for(LONGEST, 16)
    assert manager.n_available // needed == int(theoretical_concurrency(manager.n_usable, 16, LONGEST)) == 19


def test_o1_12_seats_that_were_asked_for_are_not_changed() -> None:
    assert sized(int(4.64 * GIB), max_num_seqs=18).max_num_seqs == 18
