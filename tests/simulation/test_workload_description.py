"""Descriptions: what they may say, and how they are refused."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from lorikeet_engine.simulation.assembly import build_world
from lorikeet_engine.simulation.shipped import load_device, load_model
from lorikeet_engine.simulation.workload.description import SHIPPED, load_workload, read_workload
from lorikeet_engine.simulation.workload.strict_records import DescriptionError

MINIMAL: dict[str, Any] = {
    "name": "minimal",
    "model": "smollm2-135m",
    "device": "cpu2",
    "duration_s": 1,
    "tenants": [
        {
            "name": "t",
            "arrivals": {"kind": "poisson", "rate": 1},
            "prompt": {"value": 10},
            "output": {"value": 5},
        }
    ],
}


def changed(path: str, value: object) -> dict[str, Any]:
    description = copy.deepcopy(MINIMAL)
    place: Any = description
    *parents, last = path.split(".")
    for parent in parents:
        place = place[int(parent)] if parent.isdigit() else place.setdefault(parent, {})
    place[last] = value
    return description


def test_a_minimal_description_is_read() -> None:
    workload = read_workload(MINIMAL)
    assert workload.tenants[0].arrivals.rate == 1.0
    assert workload.engine.block_size == 16


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("colour", "red", "unknown key colour"),
        ("engine.max_num_sequences", 8, "unknown key engine.max_num_sequences"),
        ("tenants.0.arrivals.rat", 2, r"unknown key tenants\[0\].arrivals.rat"),
        ("tenants.0.arrivals.rate", "fast", r"tenants\[0\].arrivals.rate must be a number, not 'fast'"),
        ("tenants.0.arrivals.kind", "steady", r"tenants\[0\].arrivals.kind is 'steady'; it must be one of"),
        ("tenants.0.arrivals.rate", 0, "poisson arrivals need a rate above 0"),
        ("tenants.0.arrivals.rate", float("nan"), "poisson arrivals need finite numbers"),
        ("tenants.0.arrivals.stop_s", float("inf"), "poisson arrivals need finite numbers"),
        ("tenants.0.prompt.mean", float("nan"), "lengths need finite numbers"),
        ("tenants.0.prompt.value", 1.5, "must be a whole number"),
        ("tenants.0.prompt.value", True, "must be a whole number, not True"),
        ("tenants.0.output", 5, r"tenants\[0\].output must be a mapping, not 5"),
        ("tenants", {}, "tenants must be a list, not dict"),
        ("engine.enable_prefix_caching", 1, "must be true or false, not 1"),
        ("trace", "trace.jsonl", "needs tenants or a trace, and not both"),
        ("duration_s", 0, "would never end"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(path: str, value: object, said: str) -> None:
    with pytest.raises(DescriptionError, match=said):
        read_workload(changed(path, value))


def test_what_is_missing_is_named() -> None:
    description = copy.deepcopy(MINIMAL)
    del description["tenants"][0]["prompt"]
    with pytest.raises(DescriptionError, match=r"tenants\[0\].prompt is missing"):
        read_workload(description)


@pytest.mark.parametrize("name", sorted(path.stem for path in SHIPPED.glob("*.yaml")))
def test_every_shipped_workload_can_be_built(name: str) -> None:
    build_world(load_workload(name))


def test_json_says_the_same_as_yaml(tmp_path: Path) -> None:
    (tmp_path / "w.json").write_text('{"name": "n", "model": "m", "device": "d", "trace": "t.jsonl"}')
    (tmp_path / "w.yaml").write_text("{name: n, model: m, device: d, trace: t.jsonl}")
    assert load_workload(str(tmp_path / "w.json")) == load_workload(str(tmp_path / "w.yaml"))
    assert load_workload(str(tmp_path / "w.json")).trace == str(tmp_path / "t.jsonl")


def test_unknown_names_are_answered_with_what_there_is() -> None:
    with pytest.raises(DescriptionError, match="shipped: chat"):
        load_workload("nothing")
    with pytest.raises(DescriptionError, match="rtx4090"):
        load_device("nothing")
    with pytest.raises(DescriptionError, match="llama-3-8b"):
        load_model("nothing")


def test_a_model_that_does_not_fit_its_device_is_refused() -> None:
    description = changed("engine.gpu_memory_utilization", 0.01)
    with pytest.raises(DescriptionError, match="no memory of cpu2 for a KV pool"):
        build_world(read_workload(description))
