"""The least time that LoRA can take beside the base model's linears: Llama-3-8B on 4.3 TB/s and 780 TFLOP/s."""

from __future__ import annotations

import pytest

from lorikeet_adapters.modules import MODULES
from lorikeet_engine.lora_floor import base_floor_seconds, lora_floor_seconds
from tests.engine.cost.published_models import H200, LLAMA3_8B

ATTENTION = MODULES[:4]
QUERY_VALUE = ("self_attn.q_proj", "self_attn.v_proj")


@pytest.mark.parametrize(
    ("n_rows", "milliseconds"), [(1, 3.25), (32, 3.28), (64, 3.31), (128, 3.38), (256, 4.58), (2048, 36.65)]
)
def test_the_base_models_linears_take_at_least(n_rows: int, milliseconds: float) -> None:
    assert base_floor_seconds(LLAMA3_8B, H200, n_rows) * 1e3 == pytest.approx(milliseconds, abs=0.0051)


@pytest.mark.parametrize(
    ("n_rows", "n_adapters", "rank", "modules", "milliseconds", "percent"),
    [
        (1, 1, 128, MODULES, 0.16, 5),
        (8, 8, 16, MODULES, 0.17, 5),
        (32, 32, 64, MODULES, 2.55, 78),
        (64, 1, 16, MODULES, 0.13, 4),
        (64, 8, 16, MODULES, 0.26, 8),
        (64, 64, 8, MODULES, 0.73, 22),
        (64, 64, 16, MODULES, 1.36, 41),
        (64, 64, 32, MODULES, 2.61, 79),
        (64, 64, 16, ATTENTION, 0.43, 13),
        (64, 64, 16, QUERY_VALUE, 0.22, 7),
        (128, 128, 16, MODULES, 2.71, 80),
        (256, 64, 16, MODULES, 1.68, 37),
        (256, 256, 16, MODULES, 5.43, 118),
        (2048, 1, 128, MODULES, 3.81, 10),
        (2048, 8, 64, MODULES, 4.11, 11),
    ],
)
def test_lora_adds_at_least(
    n_rows: int, n_adapters: int, rank: int, modules: tuple[str, ...], milliseconds: float, percent: int
) -> None:
    floor = lora_floor_seconds(LLAMA3_8B, H200, n_rows=n_rows, n_adapters=n_adapters, rank=rank, modules=modules)
    assert floor * 1e3 == pytest.approx(milliseconds, abs=0.0051)
    assert 100 * floor / base_floor_seconds(LLAMA3_8B, H200, n_rows) == pytest.approx(percent, abs=0.51)


def test_no_kernel_brings_64_distinct_adapters_below_their_own_bytes() -> None:
    adapters = 64 * 16 * 5.0 * (1 << 20)
    floor = lora_floor_seconds(LLAMA3_8B, H200, n_rows=64, n_adapters=64, rank=16)
    assert floor >= adapters / H200.peak_bandwidth
