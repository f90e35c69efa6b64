"""Sweeps by name and from files, and what is refused about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from lorikeet_engine.experiments.scenarios.choice import choose_scenario
from lorikeet_engine.experiments.scenarios.grid import read_grid
from lorikeet_engine.experiments.scenarios.named import EMBEDDED, NAMED, PUBLISHED, Size, named_scenario
from lorikeet_engine.experiments.scenarios.setup import Load, Scenario, Setup
from lorikeet_engine.simulation.workload.strict_records import DescriptionError

GRID = """
name: budgets by length
axis: max_num_batched_tokens
load: {prompt_tokens: [1024, 4096], concurrency: 16}
pool_tokens: 86864
engine: {max_num_batched_tokens: [1024, 2048], enable_prefix_caching: false}
"""


def grid(text: str) -> Scenario:
    return read_grid(yaml.safe_load(text), name="file", model="m", device="d")


@pytest.mark.parametrize("size", [PUBLISHED, EMBEDDED], ids=["published", "embedded"])
@pytest.mark.parametrize("name", NAMED)
def test_every_named_sweep_varies_its_axis(name: str, size: Size) -> None:
    scenario = named_scenario(name, size)
    assert len({setup.values()[scenario.axis] for setup in scenario.setups}) > 1


def test_o2_the_published_lengths_are_sent_by_sixteen_clients_without_a_prefix_cache() -> None:
    values = [setup.values() for setup in named_scenario("lengths", PUBLISHED).setups]
    assert [value["prompt_tokens"] for value in values] == [256, 512, 1024, 2048, 4096]
    assert {(v["concurrency"], v["output_tokens"], v["enable_prefix_caching"]) for v in values} == {(16, 256, False)}


def test_the_same_shape_for_the_embedded_model_is_half_as_crowded_and_a_quarter_as_long() -> None:
    values = [setup.values() for setup in named_scenario("lengths", EMBEDDED).setups]
    assert [value["prompt_tokens"] for value in values] == [64, 128, 256, 512, 1024]
    assert {(v["concurrency"], v["output_tokens"], v["enable_prefix_caching"]) for v in values} == {(8, 256, False)}


def test_a_grid_is_every_combination_of_what_has_a_list() -> None:
    scenario = grid(GRID)
    assert [
        (setup.load.prompt_tokens, setup.engine["max_num_batched_tokens"], setup.pool_tokens)
        for setup in scenario.setups
    ] == [(1024, 1024, 86864), (1024, 2048, 86864), (4096, 1024, 86864), (4096, 2048, 86864)]
    assert (scenario.name, scenario.model, scenario.device) == ("budgets by length", "m", "d")


def test_the_only_thing_that_varies_is_the_axis() -> None:
    assert grid("load: {concurrency: [1, 2]}").axis == "concurrency"
    assert grid("load: {concurrency: 1}").axis == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- 1", "a sweep must be a mapping"),
        ("loads: {}", "unknown key loads; known here: name, axis, model, device, load, pool_tokens, engine"),
        ("load: {clients: 3}", "unknown key load.clients"),
        ("load: {concurrency: two}", "load.concurrency must be a whole number, not 'two'"),
        ("load: {concurrency: []}", "load.concurrency must be a number"),
        ("load: {concurrency: 0}", "concurrency must be at least 1, not 0"),
        ("load: {prompt_tokens: 8, shared_tokens: 8}", "shared_tokens 8 must lie in 0"),
        ("load: {concurrency: [1, 2], prompt_tokens: [8, 9]}", "prompt_tokens all vary: say which of them is the axis"),
        ("axis: speed", "axis speed is not in every setup"),
        ("pool_tokens: 64\nengine: {kv_cache_bytes: 1}", "both size the KV pool"),
        ("pool_tokens: -1", "pool_tokens must not be negative"),
        ("pool_tokens: big", "pool_tokens must be a whole number"),
        ("engine: 3", "engine must be a mapping"),
        ("name: 3", "name must be a text"),
        (f"load: {{seed: {list(range(1001))}}}", "1001 combinations are more than 1000"),
        (
            f"axis: seed\nload: {{seed: {list(range(40))}}}\npool_tokens: {list(range(1, 41))}\n"
            f"engine: {{max_num_seqs: {list(range(1, 41))}}}",
            "64000 combinations are more than 1000",
        ),
    ],
)
def test_a_wrong_description_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(DescriptionError, match=said):
        grid(text)


def test_a_sweep_is_chosen_by_name_or_by_file_with_another_model_if_asked(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("load: {concurrency: [1, 2]}")
    assert choose_scenario("lengths", "engine").model == EMBEDDED.model
    assert choose_scenario("lengths", "simulator", device="h200").device == "h200"
    mine = choose_scenario(str(file), "simulator", model="qwen3-8b")
    assert (mine.name, mine.model, mine.device) == ("mine", "qwen3-8b", PUBLISHED.device)
    with pytest.raises(DescriptionError, match="there is no file nothing and no sweep of that name; sweeps: lengths"):
        choose_scenario("nothing", "engine")


@pytest.mark.parametrize("text", ["{", "\x00"])
def test_a_file_that_is_no_yaml_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(DescriptionError, match="cannot be read"):
        choose_scenario(str(file), "simulator")


def test_a_scenario_has_points() -> None:
    arguments: dict[str, Any] = {"name": "n", "axis": "", "model": "m", "device": "d"}
    with pytest.raises(DescriptionError, match="at least one setup"):
        Scenario(setups=[], **arguments)
    assert Scenario(setups=[Setup(load=Load())], **arguments).setups[0].values()["concurrency"] == 8
