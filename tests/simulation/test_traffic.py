"""What arrives: rates, popularity, lengths, and that equal seeds give equal traffic."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from lorikeet_engine.simulation.shipped import load_model
from lorikeet_engine.simulation.workload.adapter_catalogue import AdapterCatalogue
from lorikeet_engine.simulation.workload.arrival import N_WORDS, Arrival, Traffic, random_tokens
from lorikeet_engine.simulation.workload.description import Aborts, Adapters, SharedPrefixes, Workload
from lorikeet_engine.simulation.workload.distributions import Arrivals, Lengths, Zipf
from lorikeet_engine.simulation.workload.recorded_traffic import RecordedTraffic
from lorikeet_engine.simulation.workload.strict_records import DescriptionError
from lorikeet_engine.simulation.workload.tenant_traffic import TenantTraffic
from tests.support.simulated import tenants, workload

SPEC = load_model("qwen2.5-7b")


def everything(traffic: Traffic) -> list[Arrival]:
    arrivals: list[Arrival] = []
    while (at := traffic.next_at()) is not None:
        arrivals += traffic.take(at)
    return arrivals


def traffic_of(described: Workload) -> list[Arrival]:
    return everything(TenantTraffic(described, AdapterCatalogue(SPEC)))


def shape(arrivals: list[Arrival]) -> list[tuple[float, str, tuple[int, ...], int]]:
    return [(a.at, a.request.tenant, a.request.prompt, a.n_output) for a in arrivals]


def test_equal_seeds_give_equal_traffic_and_others_do_not() -> None:
    described = workload(tenants("a"), tenants("b"))
    assert shape(traffic_of(described)) == shape(traffic_of(described))
    assert shape(traffic_of(described)) != shape(traffic_of(workload(tenants("a"), tenants("b"), seed=2)))


def test_another_group_changes_nothing_about_the_first() -> None:
    alone = traffic_of(workload(tenants("a"), duration_s=10.0))
    together = traffic_of(workload(tenants("a"), tenants("b"), duration_s=10.0))
    assert shape(alone) == shape([a for a in together if a.request.tenant == "a"])


def test_requests_are_made_when_their_time_comes_and_not_before() -> None:
    endless = TenantTraffic(workload(tenants("a", arrivals=Arrivals(rate=1e6)), duration_s=1e9), AdapterCatalogue(SPEC))
    assert len(endless.take(0.001)) < 2000


@pytest.mark.parametrize("kind", ["poisson", "gamma", "bursty"])
def test_open_arrivals_keep_their_mean_rate(kind: str) -> None:
    arrivals = Arrivals(kind=kind, rate=5.0, factor=4.0, burst_s=2.0, burstiness=0.5)  # type: ignore[arg-type]
    times = arrivals.times(Random(1))
    n = 20_000
    last = [next(times) for _ in range(n)][-1]
    assert n / last == pytest.approx(5.0, rel=0.1)


def test_bursts_are_denser_than_their_mean() -> None:
    def variation(kind: str) -> float:
        times = Arrivals(kind=kind, rate=5.0, factor=5.0, burst_s=2.0).times(Random(1))  # type: ignore[arg-type]
        counts = Counter(int(next(times)) for _ in range(20_000))
        mean = sum(counts.values()) / (max(counts) + 1)
        return sum((counts[s] - mean) ** 2 for s in range(max(counts) + 1)) / (max(counts) + 1) / mean

    assert variation("poisson") == pytest.approx(1.0, abs=0.2)
    assert variation("bursty") > 5


def test_zipf_draws_each_rank_by_its_share() -> None:
    zipf, source = Zipf(1000, 1.0), Random(1)
    counts = Counter(zipf.draw(source) for _ in range(50_000))
    assert counts[0] / counts[9] == pytest.approx(10, rel=0.2)
    assert max(counts) <= 999


@pytest.mark.parametrize(
    ("lengths", "mean"),
    [
        (Lengths(value=7), 7),
        (Lengths(kind="uniform", min=10, max=30), 20),
        (Lengths(kind="exponential", mean=50), 50),
        (Lengths(kind="lognormal", mean=300, sigma=0.7), 300),
        (Lengths(kind="mix", values=(10, 100), weights=(9, 1)), 19),
    ],
)
def test_lengths_have_the_mean_they_say(lengths: Lengths, mean: float) -> None:
    source = Random(1)
    assert sum(lengths.draw(source) for _ in range(20_000)) / 20_000 == pytest.approx(mean, rel=0.05)


def test_words_are_spread_and_hold_no_end_of_sequence() -> None:
    tokens = random_tokens(Random(1), 50_000)
    assert len(tokens) == 50_000
    assert 0 <= min(tokens) <= max(tokens) < N_WORDS
    assert len(set(tokens)) > 20_000


def test_shared_heads_belong_to_one_tenant() -> None:
    group = tenants(
        "t", tenants=2, adapters=Adapters(count=2, zipf=0.0), shared_prefixes=SharedPrefixes(tokens=16, variants=1)
    )
    heads = {(a.request.tenant, a.request.prompt[:16]) for a in traffic_of(workload(group))}
    assert len(heads) == 2


def test_adapters_are_dealt_out_and_some_requests_need_none() -> None:
    group = tenants("t", tenants=3, adapters=Adapters(count=6, zipf=0.0, base_share=0.3))
    arrivals = traffic_of(workload(group, n_requests=600))
    adapters = {a.request.adapter for a in arrivals if a.request.adapter}
    assert len(adapters) == 6
    assert all(a.request.adapter is None or a.request.adapter.tenant == a.request.tenant for a in arrivals)
    assert sum(a.request.adapter is None for a in arrivals) / 600 == pytest.approx(0.3, abs=0.06)


def test_an_unknown_target_module_is_named() -> None:
    with pytest.raises(DescriptionError, match="known: q_proj"):
        traffic_of(workload(tenants("t", adapters=Adapters(count=1, targets=("x_proj",)))))


def test_no_request_is_longer_than_the_context_or_its_own_limit() -> None:
    long = tenants("t", prompt=Lengths(value=100_000), output=Lengths(value=5000), max_tokens=300)
    for arrival in traffic_of(workload(long)):
        assert len(arrival.request.prompt) + arrival.request.max_tokens == 8192
        assert arrival.n_output == 300


def test_a_share_of_the_clients_hangs_up() -> None:
    arrivals = traffic_of(workload(tenants("t", aborts=Aborts(share=0.25, after_s=2.0)), n_requests=1000))
    patience = [a.abort_after_s for a in arrivals if a.abort_after_s]
    assert len(patience) / 1000 == pytest.approx(0.25, abs=0.04)
    assert sum(patience) / len(patience) == pytest.approx(2.0, rel=0.2)


def recorded(tmp_path: Path, *lines: dict[str, object]) -> Traffic:
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
    described = Workload(name="trace", model="qwen2.5-7b", device="rtx4090", trace=str(path))
    return RecordedTraffic(described, AdapterCatalogue(SPEC))


LINE: dict[str, object] = {"at": 0.5, "tenant": "t", "prompt_tokens": 20, "output_tokens": 3}


def test_a_trace_is_replayed_as_it_was(tmp_path: Path) -> None:
    head = {"prefix": "system", "prefix_tokens": 16}
    arrivals = everything(
        recorded(tmp_path, LINE | head, LINE | head | {"at": 1.5, "adapter": "a", "rank": 8, "max_tokens": 9})
    )
    assert [(a.at, len(a.request.prompt), a.n_output, a.request.max_tokens) for a in arrivals] == [
        (0.5, 20, 3, 3),
        (1.5, 20, 3, 9),
    ]
    first, second = (a.request.prompt for a in arrivals)
    assert first[:16] == second[:16]
    assert first[16:] != second[16:]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"tenat": "t"}, "unknown key trace.jsonl line 2.tenat"),
        ({"at": 0.1}, "line 2 comes before the line above it"),
        ({"prompt_tokens": 0}, "line 2: prompt, output and rank are at least 1"),
    ],
)
def test_a_trace_that_is_none_is_refused_with_its_line(tmp_path: Path, line: dict[str, object], said: str) -> None:
    with pytest.raises(DescriptionError, match=said):
        everything(recorded(tmp_path, LINE, LINE | line))


def test_clients_of_a_closed_loop_send_apart_from_one_another() -> None:
    group = tenants("t", arrivals=Arrivals(kind="closed", concurrency=3, think_s=1.0, apart_s=0.25))
    described = workload(group, duration_s=100.0)
    traffic = TenantTraffic(described, AdapterCatalogue(load_model(described.model)))
    sent = [arrival for at in (0.0, 0.25, 0.5) for arrival in traffic.take(at)]
    assert [arrival.at for arrival in sent] == [0.0, 0.25, 0.5]
    for arrival in sent:
        traffic.on_ended(arrival.request.request_id, 2.0)
    assert [arrival.at for arrival in traffic.take(10.0)] == [3.0, 3.25, 3.5]


def test_equal_prompts_are_one_object_whoever_sends_them() -> None:
    arrivals = traffic_of(workload(tenants("a", prompt=Lengths(value=4000), has_equal_prompts=True)))
    assert len({id(arrival.request.prompt) for arrival in arrivals}) == 1
    assert len(arrivals[0].request.prompt) == 4000
