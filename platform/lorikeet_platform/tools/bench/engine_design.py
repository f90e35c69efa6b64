"""What our own admin API tells of the engine under test: the device's peaks and the KV pool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lorikeet_engine.experiments.record import Machine

WEIGHTS = "weights"


def machine_of(model: str, engine: Mapping[str, Any]) -> Machine:
    """From the answer of `GET /admin/v1/engine`; what is not there is not known."""
    design, performance = engine.get("design") or {}, engine.get("performance") or {}
    block_bytes, block_size = design.get("block_bytes"), design.get("block_size")
    n_blocks = design.get("n_blocks")
    weights = [row["bytes"] for row in design.get("memory", ()) if row.get("name") == WEIGHTS]
    return Machine(
        model=model,
        device=str(engine.get("device") or ""),
        peak_flops=performance.get("peak_flops"),
        peak_bandwidth=performance.get("peak_bandwidth"),
        kv_bytes_per_token=block_bytes // block_size if block_bytes and block_size else None,
        weights_bytes=weights[0] if weights else None,
        pool_tokens=n_blocks * block_size if n_blocks and block_size else None,
        block_size=block_size,
    )
