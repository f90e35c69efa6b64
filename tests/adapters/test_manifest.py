"""The arithmetic of extents."""

from __future__ import annotations

import pytest

from lorikeet_adapters.manifest import (
    GRAIN,
    BlockShape,
    extent_grains,
    head_grains,
    plan_extent,
)
from lorikeet_adapters.modules import MODULES


@pytest.mark.parametrize(
    ("n_layers", "itemsize", "grains"), [(2, 4, 2), (2, 2, 4), (30, 2, 53), (30, 4, 27), (1, 2, 2)]
)
def test_the_head_is_padded_to_a_grain_of_the_arenas_elements(n_layers: int, itemsize: int, grains: int) -> None:
    assert head_grains(n_layers, itemsize) == grains
    assert (grains - 1) * GRAIN * itemsize < n_layers * len(MODULES) * 8 <= grains * GRAIN * itemsize


def test_blocks_follow_one_another_from_the_end_of_the_head() -> None:
    blocks = [
        BlockShape(0, MODULES[0], 4, 32, 32),
        BlockShape(0, MODULES[2], 1, 32, 16),
        BlockShape(1, MODULES[6], 3, 48, 32),
    ]
    plan = plan_extent(2, 2, blocks)
    assert plan.starts == (4, 4 + 16, 4 + 16 + 3)
    assert plan.n_grains == extent_grains(2, 2, blocks) == 4 + 16 + 3 + 15


def test_a_published_size_is_reproduced() -> None:
    """Qwen3-8B, q and v, rank 16, bf16: 14.6 MiB an adapter."""
    widths = {"self_attn.q_proj": (4096, 4096), "self_attn.v_proj": (4096, 1024)}
    blocks = [BlockShape(layer, name, 16, *width) for layer in range(36) for name, width in widths.items()]
    n_bytes = extent_grains(36, 2, blocks) * GRAIN * 2
    assert round((n_bytes - head_grains(36, 2) * GRAIN * 2) / 2**20, 1) == 14.6
