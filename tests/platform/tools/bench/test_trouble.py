"""Load on a server that refuses, breaks or says too little, and addresses and keys that cannot be used."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from lorikeet_engine.simulation.workload.distributions import Arrivals
from lorikeet_engine.simulation.workload.strict_records import DescriptionError
from lorikeet_platform.tools.bench.load.book import Book
from lorikeet_platform.tools.bench.load.pauses import retry_after
from lorikeet_platform.tools.bench.load.run import run_load, run_point
from lorikeet_platform.tools.bench.load.sender import Answer, Sender
from lorikeet_platform.tools.bench.load.target import Target, TargetUnfit, find_target
from lorikeet_platform.tools.bench.remarks import remarks
from lorikeet_platform.tools.bench.summary import summarise
from tests.support.bench_loads import CLOSED, group, load, target
from tests.support.openai_server import Behaviour, openai_server


def test_a_client_that_was_refused_waits_as_long_as_the_server_says_and_the_report_says_so() -> None:
    told = [
        Behaviour(status=429, code="full", headers={"Retry-After": "7", "retry-after-ms": "150"}),
        Behaviour(status=503, code="full", headers={"Retry-After": "0"}),  # as if it had said nothing: twice 0.1 s
        Behaviour(),
    ]
    one_client = group(arrivals=replace(CLOSED, concurrency=1))
    with openai_server(behaviours=told) as server:
        point = run_point(target(server), load(one_client, n_requests=4))
    sent = [request.sent_s for request in point.requests]
    assert [request.outcome for request in point.requests] == ["refused", "refused", "ok", "ok"]
    assert 0.15 <= sent[1] - sent[0] < 0.25
    assert 0.2 <= sent[2] - sent[1] < 0.35
    assert point.generator is not None
    assert point.generator.n_pauses == 2
    assert point.generator.paused_s == pytest.approx(0.35)
    assert any("waited before they asked again, 2 times" in remark for remark in remarks(point))


def test_refusals_in_a_closed_loop_are_no_storm_and_in_an_open_one_nobody_waits() -> None:
    refusal = Behaviour(status=429, code="full", headers={"Retry-After": "30"})
    with openai_server(behaviours=[replace(refusal, headers={})]) as server:
        point = run_point(target(server), load(n_requests=0, duration_s=0.6))
    assert len(point.requests) == 3 * 3  # at 0, 0.1 and 0.3 s
    arrivals = Arrivals(kind="poisson", rate=100.0)
    with openai_server(behaviours=[refusal]) as server:
        point = run_point(target(server), load(group(arrivals=arrivals), n_requests=20))
    due = arrivals.times(Random("1/bench/arrivals"))
    assert sorted(request.sent_s for request in point.requests) == [next(due) for _ in range(20)]
    assert point.generator is not None
    assert point.generator.n_pauses == 0
    assert not any("waited before" in remark for remark in remarks(point))


def test_one_clients_pause_is_not_the_others() -> None:
    told = [Behaviour(status=429, headers={"Retry-After": "60"}), Behaviour(pace_s=0.01)]
    with openai_server(behaviours=told) as server:
        point = run_point(target(server), load(n_requests=0, duration_s=0.4))
    assert summarise(point).outcomes["refused"] == 1
    assert summarise(point).outcomes["ok"] > 6
    assert point.generator is not None
    assert point.generator.paused_s == pytest.approx(0.4, abs=0.1)  # what is left of the test


def test_clients_send_as_far_apart_as_their_group_says() -> None:
    with openai_server() as server:
        point = run_point(target(server), load(group(arrivals=replace(CLOSED, apart_s=0.05)), n_requests=6))
    sent = sorted(request.sent_s for request in point.requests)
    assert all(after - before >= 0.05 - 1e-9 for before, after in pairwise(sent))


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ],
)
def test_how_long_a_server_asks_to_be_left_alone(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def test_trouble_that_nobody_foresaw_fails_its_request_and_not_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stumble(_sender: Sender, answer: Answer) -> None:
        if answer.ask.at == 0.0:
            raise ZeroDivisionError("by zero")
        answer.outcome = "ok"

    monkeypatch.setattr(Sender, "_exchange", stumble)
    run = run_load(Target(url="http://127.0.0.1:9", model="m", n_warmups=0), load(n_requests=9))
    assert summarise(run.point).codes == {"ZeroDivisionError": 3}
    assert run.failures == {"ZeroDivisionError: by zero": 3}


def test_a_fault_of_the_generators_own_comes_out_and_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    def stumble(_book: Book, _answer: Answer) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(Book, "add", stumble)
    with openai_server() as server, pytest.raises(ZeroDivisionError):
        run_load(target(server), load())


def test_a_key_that_fits_no_header_is_refused_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for key in ("sk-a\nb", "sk-\x07", "sk-ü", " sk"):
        with pytest.raises(TargetUnfit, match="characters") as refused:
            Target(url="http://127.0.0.1:9", model="m", api_key=key)
        assert refused.value.is_key
        with pytest.raises(TargetUnfit, match="characters"):
            find_target("http://127.0.0.1:9", api_key=key, model="", endpoint="/v1/completions", prompts=None)
    monkeypatch.setenv("ACME_KEY", "lk_a\x07")
    with pytest.raises(DescriptionError, match="acme: its key holds characters"):
        run_load(Target(url="http://127.0.0.1:9", model="m"), load(group("acme", api_key_env="ACME_KEY")))


@pytest.mark.parametrize(
    ("url", "api_key", "said"),
    [
        ("127.0.0.1:8000", "", "no address of a server"),
        ("ftp://host", "", "no address of a server"),
        ("http://host:port", "", "no address of a server"),
        ("http://host/?token=s3cret", "", "a query"),
        ("http://me:s3cret@host", "lk_key", "there is a key as well"),
    ],
)
def test_an_address_that_cannot_be_asked_is_refused_without_its_secrets(url: str, api_key: str, said: str) -> None:
    with pytest.raises(DescriptionError, match=said) as refused:
        find_target(url, api_key=api_key, model="m", endpoint="/v1/completions", prompts="words")
    assert "s3cret" not in str(refused.value)


def test_a_password_in_the_address_is_sent_and_beside_a_tenants_key_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_KEY", "lk_acme")
    with openai_server() as server:
        own = replace(target(server), url=server.url.replace("//", "//me:s3cret@"))
        run_point(own, load(n_requests=1))
        with pytest.raises(DescriptionError, match="there is a key as well"):
            run_point(own, load(group("acme", api_key_env="ACME_KEY")))
    assert server.keys == ["Basic bWU6czNjcmV0"]
    assert own.shown_url == server.url


def test_an_answer_without_text_has_no_first_piece_and_has_not_kept_a_goal_for_it() -> None:
    with openai_server(behaviours=[Behaviour(is_mute=True), Behaviour()]) as server:
        point = run_point(target(server), load(n_requests=4))
    summary = summarise(point, goals={"ttft": 60.0, "tpot": 60.0, "e2el": 60.0})
    counts = {latency.metric: latency.count for latency in summary.latencies}
    assert (summary.outcomes["ok"], counts) == (4, {"ttft": 3, "tpot": 3, "itl": 9, "e2el": 4})
    assert summary.goodput is not None
    assert (summary.goodput.met, summary.goodput.missed) == (3, 1)
    ended = summarise(point, goals={"e2el": 60.0}).goodput
    assert ended is not None
    assert ended.met == 4
    mute = next(request for request in point.requests if request.first_s is None)
    single = summarise(replace(point, requests=[replace(mute, n_output=1)]), goals={"tpot": 60.0})
    assert single.goodput is not None
    assert single.goodput.met == 1
    assert single.tenants[0].ttft_p50 is None
