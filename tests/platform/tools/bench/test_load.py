"""Load on a server that answers from a script: when requests leave, what is counted, what trouble is called."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lorikeet_engine.experiments.record import PointRecord
from lorikeet_engine.simulation.workload.description import Aborts, SharedPrefixes
from lorikeet_engine.simulation.workload.distributions import Arrivals, Lengths
from lorikeet_engine.simulation.workload.strict_records import DescriptionError
from lorikeet_platform.tools.bench.load.book import LoopLag
from lorikeet_platform.tools.bench.load.description import Load, NamedAdapters, TenantKey
from lorikeet_platform.tools.bench.load.run import run_load, run_point
from lorikeet_platform.tools.bench.load.target import Target, TargetUnfit, find_target
from lorikeet_platform.tools.bench.remarks import is_late, remarks
from lorikeet_platform.tools.bench.summary import summarise
from tests.support.bench_loads import CLOSED, group, load, target
from tests.support.openai_server import Behaviour, OpenAiServer, openai_server


def prompts(server: OpenAiServer) -> list[list[str]]:
    return [asked["prompt"].split() for asked in server.asked]


def test_an_open_load_waits_for_nobody_and_latency_counts_from_when_a_request_was_due() -> None:
    arrivals = Arrivals(kind="poisson", rate=100.0)
    with openai_server(behaviours=[Behaviour(first_s=0.25)]) as server:
        point = run_point(target(server), load(group(arrivals=arrivals), n_requests=0, duration_s=0.4))
    due = list(takewhile(lambda at: at < 0.4, arrivals.times(Random("1/bench/arrivals"))))
    assert sorted(request.sent_s for request in point.requests) == due
    assert server.most_running > 10
    assert all(request.first_s is not None and request.first_s - request.sent_s >= 0.25 for request in point.requests)


def test_what_was_due_while_the_generator_stood_still_waited_since_then() -> None:
    arrivals = Arrivals(kind="poisson", rate=100.0)

    def stand_still(n_sent: int, _n_ended: int) -> None:
        if n_sent == 5:
            time.sleep(0.05)

    with openai_server() as server:
        point = run_point(target(server), load(group(arrivals=arrivals), n_requests=40), told=stand_still)
    assert point.generator is not None
    assert point.generator.late_max_s > 0.03
    due = arrivals.times(Random("1/bench/arrivals"))
    assert sorted(request.sent_s for request in point.requests) == [next(due) for _ in range(40)]


def test_a_closed_load_has_so_many_requests_under_way_and_pauses_between_them() -> None:
    with openai_server(behaviours=[Behaviour(pace_s=0.01)]) as server:
        point = run_point(target(server), load(group(arrivals=replace(CLOSED, think_s=0.05)), n_requests=9))
    assert server.most_running == 3
    starts = sorted(request.sent_s for request in point.requests)
    assert starts[:3] == [0.0, 0.0, 0.0]
    assert starts[3] >= 3 * 0.01 + 0.05


def test_counts_are_the_servers_and_lengths_are_exact_for_token_ids() -> None:
    with openai_server() as server:
        point = run_point(target(server, prompts="ids", vocab_size=100), load())
    assert all(isinstance(unit, int) and 3 <= unit < 100 for asked in server.asked for unit in asked["prompt"])
    summary = summarise(point)
    assert (summary.prompt_tokens, summary.output_tokens) == (server.prompt_tokens, server.output_tokens) == (72, 36)
    assert summary.outcomes["ok"] == 9
    assert sum(n for _, n in point.gaps) == 9 * 3


@pytest.mark.parametrize("endpoint", ["/v1/completions", "/v1/chat/completions"])
def test_both_routes_are_asked_as_their_own(endpoint: Any) -> None:
    with openai_server() as server:
        point = run_point(target(server, endpoint=endpoint), load(n_requests=2))
    for asked in server.asked:
        assert asked["path"] == endpoint
        assert ("messages" in asked) == (endpoint == "/v1/chat/completions")
        assert (asked["stream"], asked["max_tokens"], asked["temperature"]) == (True, 4, 0.0)
        assert asked["stream_options"] == {"include_usage": True}
        assert "ignore_eos" not in asked
    assert [request.outcome for request in point.requests] == ["ok", "ok"]


def test_ignoring_the_end_is_asked_for_only_on_request() -> None:
    with openai_server() as server:
        run_point(target(server, ignore_eos=True), load(n_requests=1))
    assert server.asked[0]["ignore_eos"] is True


@pytest.mark.parametrize(
    ("behaviour", "outcome", "code"),
    [
        (Behaviour(status=429, code="rate_limit_exceeded"), "refused", "rate_limit_exceeded"),
        (Behaviour(status=503, code="overloaded"), "refused", "overloaded"),
        (Behaviour(status=504, code="deadline_exceeded"), "expired", "deadline_exceeded"),
        (Behaviour(status=500, code=500), "failed", "500"),
        (Behaviour(ends_after=2), "failed", "stream_ended_early"),
        (Behaviour(ends_after=0), "failed", "stream_ended_early"),
        (Behaviour(error_after=1, code="engine_failed"), "failed", "engine_failed"),
        (Behaviour(has_garbage=True), "failed", "broken_stream"),
    ],
)
def test_trouble_is_told_by_its_name_and_is_no_latency(behaviour: Behaviour, outcome: str, code: str) -> None:
    with openai_server(behaviours=[behaviour, Behaviour()]) as server:
        run = run_load(target(server), load(n_requests=4))
    summary = summarise(run.point, goals={"ttft": 60.0})
    assert summary.outcomes[outcome] == 1
    assert summary.outcomes["ok"] == 3
    assert summary.codes == {code: 1}
    assert all(latency.count in (3, 9) for latency in summary.latencies)
    assert summary.goodput is not None
    assert (summary.goodput.met, summary.goodput.missed, summary.goodput.share) == (3, 1, 0.75)
    assert len(run.failures) == 1


def test_a_server_that_is_gone_fails_every_request() -> None:
    with openai_server() as server:
        gone = target(server)
    point = run_point(gone, load(n_requests=3))
    assert Counter(request.code for request in point.requests) == {"connection_lost": 3}


def test_clients_hang_up_and_that_counts_neither_way() -> None:
    aborts = Aborts(share=1.0, after_s=0.02)
    with openai_server(behaviours=[Behaviour(first_s=5.0)]) as server:
        point = run_point(target(server), load(group(aborts=aborts), n_requests=6))
        deadline = time.monotonic() + 5
        while server.n_hung_up < 6 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert {request.outcome for request in point.requests} == {"aborted"}
    assert server.n_hung_up == 6
    assert summarise(point).is_clean


def test_pieces_that_are_no_tokens_are_told_and_so_are_missing_counts() -> None:
    with openai_server(behaviours=[Behaviour(tokens_a_piece=3)]) as server:
        point = run_point(target(server), load(n_requests=3))
    assert point.generator is not None
    assert (point.generator.n_pieces, point.generator.n_tokens, point.generator.n_differing) == (6, 12, 3)
    assert any("6 pieces, 12 tokens" in remark for remark in remarks(point))
    with openai_server(behaviours=[Behaviour(has_usage=False)]) as server:
        point = run_point(target(server), load(n_requests=3))
    assert point.generator is not None
    assert point.generator.n_without_usage == 3
    assert [(request.n_prompt, request.n_output) for request in point.requests] == [(8, 4)] * 3


def test_tenants_ask_with_their_own_keys_for_their_own_adapters(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ACME_KEY", "lk_acme")
    (tmp_path / "key").write_text("lk_globex\n")
    adapters = NamedAdapters(names=("often", "seldom"), zipf=2.0, base_share=0.2)
    groups = (
        group("acme", api_key_env="ACME_KEY", adapters=adapters, arrivals=Arrivals(kind="closed", concurrency=2)),
        group("globex", api_key_file=str(tmp_path / "key"), arrivals=Arrivals(kind="closed", concurrency=1)),
        group("own", arrivals=Arrivals(kind="closed", concurrency=1)),
    )
    with openai_server() as server:
        point = run_point(target(server, api_key="lk_default"), load(*groups, n_requests=120))
    models = {key: Counter() for key in set(server.keys)}  # type: dict[str, Counter[str]]
    for key, asked in zip(server.keys, server.asked, strict=True):
        models[key][asked["model"]] += 1
    assert models.keys() == {"Bearer lk_acme", "Bearer lk_globex", "Bearer lk_default"}
    assert set(models["Bearer lk_globex"]) == {"tiny"}
    assert models["Bearer lk_acme"]["often"] > models["Bearer lk_acme"]["seldom"] > 0
    assert models["Bearer lk_acme"]["tiny"] > 0
    tenants = {own.tenant: own.sent for own in summarise(point).tenants}
    assert tenants["acme"] == models["Bearer lk_acme"].total()


def test_a_key_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACME_KEY", raising=False)
    with openai_server() as server:
        for changes, named in (
            ({"api_key_env": "ACME_KEY"}, "ACME_KEY"),
            ({"api_key_file": "/nowhere/key"}, "/nowhere/key"),
            ({"api_key_env": "A", "api_key_file": "b"}, "contradict"),
        ):
            with pytest.raises(DescriptionError, match=named):
                run_point(target(server), load(group(**changes)))
    assert server.asked == []


def test_heads_are_shared_and_nothing_else_is_asked_twice_not_even_by_the_warm_up() -> None:
    shared = SharedPrefixes(tokens=6, variants=2)
    lengths: dict[str, Any] = {"prompt": Lengths(value=20), "shared_prefixes": shared}
    with openai_server() as server:
        point = run_point(target(server, n_warmups=2), load(group(**lengths), n_requests=30))
    assert len(point.requests) == 30
    warm_up, asked = prompts(server)[:2], prompts(server)[2:]
    assert len({tuple(prompt[:6]) for prompt in asked}) == 2
    assert len({tuple(prompt) for prompt in asked}) == 30
    assert not {tuple(prompt[:6]) for prompt in warm_up} & {tuple(prompt[:6]) for prompt in asked}


def test_equal_seeds_ask_the_same_and_others_do_not() -> None:
    def asked(seed: int) -> set[tuple[str, ...]]:
        with openai_server() as server:
            run_point(target(server), load(seed=seed))
        return {tuple(prompt) for prompt in prompts(server)}

    assert asked(1) == asked(1)
    assert not asked(1) & asked(2)


def test_a_trace_is_sent_as_it_was_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = {"at": 0.0, "tenant": "acme", "prompt_tokens": 12, "output_tokens": 3, "prefix": "p", "prefix_tokens": 8}
    lines = [line, line | {"at": 0.1, "adapter": "a", "max_tokens": 5}, line | {"at": 0.15, "tenant": "globex"}]
    trace = tmp_path / "trace.jsonl"
    trace.write_text("\n".join(json.dumps(one) for one in lines))
    monkeypatch.setenv("ACME_KEY", "lk_acme")
    keys = (TenantKey(tenant="acme", api_key_env="ACME_KEY"),)
    with openai_server() as server:
        point = run_point(target(server), Load(name="trace", trace=str(trace), keys=keys))
    assert [(request.sent_s, request.tenant) for request in point.requests] == [
        (0.0, "acme"),
        (0.1, "acme"),
        (0.15, "globex"),
    ]
    assert [asked["max_tokens"] for asked in server.asked] == [3, 5, 3]
    assert [asked["model"] for asked in server.asked] == ["tiny", "a", "tiny"]
    assert server.keys == ["Bearer lk_acme", "Bearer lk_acme", ""]
    first, second, third = prompts(server)
    assert first[:8] == second[:8] != third[:8]


def test_a_warm_up_that_fails_ends_the_test_before_it_begins() -> None:
    with openai_server(behaviours=[Behaviour(status=401, code="invalid_api_key")]) as server:
        with pytest.raises(TargetUnfit, match="invalid_api_key") as refused:
            run_point(target(server, n_warmups=1), load())
        assert refused.value.is_key
    assert len(server.asked) == 1


def test_the_servers_list_of_models_fills_in_what_was_left_open() -> None:
    ours = [{"id": "smol", "owned_by": "platform", "lorikeet": {}}, {"id": "pirate", "lorikeet": {}}]
    options: dict[str, Any] = {"api_key": "", "model": "", "prompts": None}
    with openai_server(models=ours) as server:
        found = find_target(f"{server.url}/v1/", endpoint="/v1/completions", **options)
        assert (found.url, found.model, found.prompts) == (server.url, "smol", "ids")
        assert find_target(server.url, endpoint="/v1/chat/completions", **options).prompts == "words"
    with openai_server() as server:
        assert find_target(server.url, endpoint="/v1/completions", **options).prompts == "words"
    with openai_server(models=[]) as server, pytest.raises(TargetUnfit, match="--model"):
        find_target(server.url, endpoint="/v1/completions", **options)
    with pytest.raises(TargetUnfit, match="token ids"):
        Target(url="", model="m", endpoint="/v1/chat/completions", prompts="ids")


def test_a_loop_that_stands_still_is_seen() -> None:
    async def stand_still() -> LoopLag:
        lag = LoopLag()
        watching = asyncio.create_task(lag.watch())
        for _ in range(5):
            await asyncio.sleep(0.02)
            time.sleep(0.05)
        watching.cancel()
        return lag

    lag = asyncio.run(stand_still())
    assert lag.at(1.0) >= 0.03


def test_a_generator_is_late_only_beside_what_it_measures() -> None:
    with openai_server(behaviours=[Behaviour(first_s=0.05, pace_s=0.03)]) as server:
        point = run_point(target(server), load(n_requests=3))
    assert point.generator is not None
    slow = replace(point.generator, lag_p99_s=0.02, late_p99_s=0.0, cpu_share=0.1)
    quick = replace(slow, lag_p99_s=0.001)
    assert is_late(replace(point, generator=slow))
    assert not is_late(replace(point, generator=quick))
    assert is_late(replace(point, generator=replace(quick, cpu_share=0.95)))
    assert "partly its own" in remarks(replace(point, generator=slow))[0]
    assert not is_late(PointRecord(setup={}, seconds=1.0, requests=[], gaps=[]))


def test_prompts_that_the_servers_cache_knows_from_an_earlier_test_are_told() -> None:
    with openai_server() as server:
        point = run_point(target(server), load(n_requests=3))
    warm = replace(point, requests=[replace(request, n_cached=6) for request in point.requests])
    assert any("18 of 24 prompt tokens" in remark for remark in remarks(warm))
    shared = replace(warm, setup=warm.setup | {"shared_tokens": 6})
    assert not any("prefix cache" in remark for remark in remarks(shared) + remarks(point))
