"""What `bench serve` takes, and what it refuses by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lorikeet_engine.simulation.workload.strict_records import DescriptionError
from lorikeet_platform.tools.bench.load.description import load_description
from lorikeet_platform.tools.bench.options import LoadOptions, goals_of, judging_of, load_of

DESCRIPTION = """
name: two tenants
duration_s: 5
tenants:
  - name: acme
    api_key_env: ACME_KEY
    arrivals: {kind: gamma, rate: 3, burstiness: 0.5}
    prompt: {kind: lognormal, mean: 400, sigma: 0.8, max: 4000}
    output: {kind: exponential, mean: 150, max: 1000}
    adapters: {names: [support, sales], zipf: 1.2, base_share: 0.1}
    shared_prefixes: {tokens: 200, variants: 2, share: 0.9}
    aborts: {share: 0.1, after_s: 5}
  - name: globex
    arrivals: {kind: closed, concurrency: 2, think_s: 0.5}
    prompt: {value: 100}
    output: {value: 10}
"""


def described(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "load.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, "--request-rate, --concurrency, --trace or --workload"),
        ({"concurrency": 2, "request_rate": 3.0}, "--request-rate"),
        ({"concurrency": 2, "burstiness": 0.5}, "--burstiness"),
        ({"request_rate": float("inf"), "burstiness": 0.5}, "--burstiness"),
        ({"request_rate": float("inf"), "duration": 3.0}, "--duration"),
        ({"trace": Path("t.jsonl"), "concurrency": 2}, "--concurrency"),
        ({"trace": Path("t.jsonl"), "random_input_len": 2}, "--random-input-len"),
        ({"trace": Path("t.jsonl"), "lora_modules": ("a",)}, "--lora-modules"),
        ({"workload": Path("w.yaml"), "trace": Path("t.jsonl")}, "--trace"),
        ({"workload": Path("w.yaml"), "num_prompts": 2}, "--num-prompts"),
        ({"workload": Path("w.yaml"), "zipf": 1.0}, "--zipf"),
        ({"concurrency": 2, "zipf": 1.0}, "--zipf"),
        ({"concurrency": 2, "random_range_ratio": 1.0}, "--random-range-ratio"),
        ({"request_rate": 0.0}, "rate above 0"),
        ({"request_rate": float("nan")}, "finite"),
        ({"request_rate": 2.0, "burstiness": float("inf")}, "finite"),
        ({"request_rate": 2.0, "duration": float("nan")}, "duration_s must be a finite"),
        ({"request_rate": 2.0, "duration": float("inf")}, "duration_s must be a finite"),
        ({"concurrency": 2, "lora_modules": ("a",), "zipf": float("nan")}, "zipf must be a finite"),
    ],
)
def test_options_that_contradict_each_other_are_refused_by_name(options: dict[str, Any], named: str) -> None:
    with pytest.raises(DescriptionError, match=named.replace(".", r"\.")):
        load_of(LoadOptions(**options))


def test_options_of_one_group_make_one_group() -> None:
    load = load_of(
        LoadOptions(
            request_rate=4.0,
            burstiness=0.5,
            random_input_len=100,
            random_output_len=20,
            random_range_ratio=0.5,
            random_prefix_len=30,
            lora_modules=("a,b", "c"),
            num_prompts=7,
        )
    )
    (group,) = load.tenants
    assert (group.arrivals.kind, group.arrivals.rate, group.arrivals.burstiness) == ("gamma", 4.0, 0.5)
    assert (group.prompt.min, group.prompt.max, group.output.min, group.output.max) == (80, 180, 10, 30)
    assert group.shared_prefixes is not None
    assert group.shared_prefixes.tokens == 30
    assert group.adapters is not None
    assert (group.adapters.names, group.adapters.zipf) == (("a", "b", "c"), 0.0)  # all alike, as vLLM asks for them
    assert (load.n_requests, load.duration_s) == (7, 0.0)


def test_an_infinite_rate_sends_all_at_once() -> None:
    load = load_of(LoadOptions(request_rate=float("inf"), num_prompts=9))
    assert (load.tenants[0].arrivals.kind, load.tenants[0].arrivals.concurrency) == ("closed", 9)


def test_a_file_uses_the_words_of_simulated_workloads(tmp_path: Path) -> None:
    load = load_of(LoadOptions(workload=described(tmp_path, DESCRIPTION), seed=5))
    acme, globex = load.tenants
    assert load.seed == 5
    assert (acme.prompt.kind, acme.output.mean, acme.api_key_env) == ("lognormal", 150, "ACME_KEY")
    assert globex.arrivals.think_s == 0.5


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("rate: 3", "rat: 3"), "unknown key tenants.0..arrivals.rat;"),
        (("duration_s: 5", "seed: 5"), "duration_s or an n_requests"),
        (("names: [support, sales]", "names: []"), "adapters need names"),
        (("name: globex", "name: acme"), "the same name"),
        (("name: two tenants", "name: both\ntrace: t.jsonl"), "tenants or a trace"),
    ],
)
def test_a_file_that_describes_no_load_is_refused_with_its_place(
    tmp_path: Path, change: tuple[str, str], said: str
) -> None:
    with pytest.raises(DescriptionError, match=said):
        load_description(described(tmp_path, DESCRIPTION.replace(*change)))


@pytest.mark.parametrize("words", [["ttft:500", "tpot:50"], ["ttft:500 tpot:50"], ["ttft:500,tpot:50"]])
def test_goals_are_taken_as_vllm_takes_them(words: list[str]) -> None:
    assert goals_of(words) == {"ttft": 0.5, "tpot": 0.05}


@pytest.mark.parametrize("word", ["itl:5", "ttft", "ttft:x", "ttft:-1", "ttft:inf", "ttft:1 ttft:2"])
def test_goals_that_are_none_are_refused(word: str) -> None:
    with pytest.raises(DescriptionError, match="--goodput"):
        goals_of([word])


def test_metrics_and_percentiles_are_chosen_by_name() -> None:
    judging = judging_of("itl,ttft", "99,50,99", ["ttft:500"], ["tpot:50"])
    assert (judging.metrics, judging.shares) == (["itl", "ttft"], [0.5, 0.99])
    assert judging.goals == {"ttft": 0.5, "tpot": 0.05}
    for metrics, percentiles, more, named in (
        ("ttft,latency", "50", (), "--percentile-metrics"),
        ("ttft", "101", (), "--metric-percentiles"),
        ("ttft", "half", (), "--metric-percentiles"),
        ("ttft", "50", ("tpot:50",), "unexpected argument"),
    ):
        with pytest.raises(DescriptionError, match=named):
            judging_of(metrics, percentiles, (), more)
