"""Constants of devices, read strictly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lorikeet_engine.cost import DEVICES, load_profile, read_profile

VALUES = {
    "name": "box",
    "peak_flops": 1e12,
    "peak_bandwidth": 1e11,
    "memory_bytes": 1 << 30,
    "host_bandwidth": 1e10,
    "disk_bandwidth": 1e9,
    "mfu_prefill": 0.5,
    "mbu": 0.8,
    "step_overhead_s": 0.001,
}


@pytest.mark.parametrize("path", sorted(DEVICES.glob("*.json")), ids=lambda path: path.stem)
def test_every_shipped_profile_reads_and_is_named_like_its_file(path: Path) -> None:
    assert load_profile(path).name == path.stem


def test_what_is_not_given_costs_nothing() -> None:
    profile = read_profile(VALUES)
    assert (profile.row_overhead_s, profile.lora_overhead_s) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"peak_flop": 1}, "unknown peak_flop;"),
        ({"peak_flops": 0}, "box: peak_flops 0 is not positive"),
        ({"peak_bandwidth": float("nan")}, "peak_bandwidth nan is not positive"),
        ({"mbu": 1.2}, "mbu 1.2 is not a share"),
        ({"mfu_prefill": 0}, "mfu_prefill 0 is not a share"),
        ({"row_overhead_s": -1}, "row_overhead_s -1 is negative"),
    ],
)
def test_a_wrong_value_is_refused_by_name(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_profile({**VALUES, **change})


def test_a_missing_value_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="mbu, step_overhead_s is missing"):
        read_profile({name: value for name, value in VALUES.items() if name not in ("mbu", "step_overhead_s")})
