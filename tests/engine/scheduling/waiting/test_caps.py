"""How many requests a tenant, or a key's lineage, may have in the engine, and how many of them may wait."""

from __future__ import annotations

import pytest

from lorikeet_engine.errors import ConcurrencyLimited, QueueLimited, TenantLimited
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.protocol import Cap
from tests.support.scripted_engine_parts import request
from tests.support.stepped_engine import SteppedEngine, stepped_engine


def submit(
    engine: SteppedEngine, name: str, *caps: Cap, n: int = 1, adapter: str = "", max_tokens: int = 4, n_prompt: int = 5
) -> None:
    prompt = request(name, n_prompt=n_prompt).prompt
    names = [f"{name}#{index}" if index else name for index in range(n)]
    engine.submit_together(
        [request(each, prompt=prompt, adapter=adapter, max_tokens=max_tokens) for each in names], caps
    )


def present(engine: SteppedEngine, subject: str = "anna") -> tuple[int, int]:
    here = engine.scheduler.caps.present(subject)
    return len(here), len(here.waiting)


def refused(engine: SteppedEngine, kind: type[TenantLimited], *caps: Cap) -> TenantLimited:
    before = present(engine)
    with pytest.raises(kind) as caught:
        submit(engine, "refused", *caps)
    assert type(caught.value) is kind
    assert present(engine) == before
    return caught.value


def test_as_many_requests_as_the_cap_says_are_taken_and_one_more_when_one_has_ended() -> None:
    engine, cap = stepped_engine(), Cap("anna", 2, 9)
    submit(engine, "one", cap)
    engine.step()
    submit(engine, "two", cap, max_tokens=9)
    error = refused(engine, ConcurrencyLimited, cap)
    assert (error.code, error.reason) == ("concurrency_limit_exceeded", "tenant_concurrency")
    assert error.message == "your own limit: 2 requests run or wait, and 2 may at a time"
    engine.step_until(lambda: "one" in engine.finished)
    submit(engine, "three", cap)
    refused(engine, ConcurrencyLimited, cap)
    assert engine.counters.refusals["tenant_concurrency"] == 2
    engine.drain()
    assert present(engine) == (0, 0)


def test_only_so_many_wait_as_the_cap_says_and_who_has_begun_waits_no_more() -> None:
    engine, cap = stepped_engine(max_num_seqs=1), Cap("anna", 9, 2)
    submit(engine, "one", cap)
    engine.step()
    submit(engine, "two", cap)
    submit(engine, "three", cap)
    error = refused(engine, QueueLimited, cap)
    assert (error.code, error.reason) == ("queue_limit_exceeded", "tenant_waiting")
    assert error.message == "your own limit: 2 requests wait, and 2 may"
    engine.step_until(lambda: "two" in engine.admitted)
    submit(engine, "four", cap)
    assert present(engine) == (3, 2)
    engine.drain()
    assert present(engine) == (0, 0)


def test_several_answers_are_one_request_until_the_last_of_them_ends() -> None:
    engine, cap = stepped_engine(max_num_seqs=2), Cap("anna", 1, 1)
    submit(engine, "r", cap, n=4)
    assert present(engine) == (1, 1)
    engine.step_until(lambda: "r" in engine.admitted)
    assert present(engine) == (1, 0), "two answers still wait, but it has begun"
    for name in ("r", "r#1", "r#2"):
        engine.loop.abort(name)
        refused(engine, ConcurrencyLimited, cap)
    engine.loop.abort("r#3")
    assert present(engine) == (0, 0)
    submit(engine, "next", cap)
    engine.drain()


def test_each_subject_is_counted_and_the_first_that_is_full_refuses() -> None:
    engine = stepped_engine()
    submit(engine, "one", Cap("anna", 9, 9), Cap("her key", 1, 9))
    submit(engine, "two", Cap("anna", 9, 9), Cap("her other key", 1, 9))
    refused(engine, ConcurrencyLimited, Cap("anna", 9, 9), Cap("her key", 1, 9))
    assert present(engine) == (2, 2)
    assert present(engine, "her key") == (1, 1)
    submit(engine, "ben", Cap("ben", 1, 1))
    engine.drain()
    assert len(engine.scheduler.caps) == 0


def test_the_newest_word_counts_and_a_request_without_caps_is_nobodys() -> None:
    engine = stepped_engine()
    submit(engine, "one", Cap("anna", 1, 1))
    submit(engine, "two", Cap("anna", 3, 2))
    submit(engine, "free")
    refused(engine, ConcurrencyLimited, Cap("anna", 2, 9))
    assert present(engine) == (2, 2)
    engine.drain()


@pytest.mark.parametrize(("cap", "kind"), [(Cap("anna", 0, 9), ConcurrencyLimited), (Cap("anna", 9, 0), QueueLimited)])
def test_a_cap_of_zero_refuses_all_and_names_no_time_to_come_back(cap: Cap, kind: type[TenantLimited]) -> None:
    engine = stepped_engine()
    assert refused(engine, kind, cap).retry_after_s is None


def test_the_time_to_come_back_is_when_the_shortest_is_expected_to_end_and_a_second_at_least() -> None:
    engine, cap = stepped_engine(max_model_len=4000, n_blocks=2000), Cap("anna", 2, 9)
    submit(engine, "long", cap, max_tokens=3000)
    submit(engine, "shorter", cap, max_tokens=2000)
    early = refused(engine, ConcurrencyLimited, cap).retry_after_s
    assert early is not None
    assert early >= 1.0, "nothing has begun"
    engine.step(3)
    step_s = engine.scheduler._rates.step_s(0)
    later = refused(engine, ConcurrencyLimited, cap).retry_after_s
    assert later is not None
    assert later == pytest.approx(min(60.0, max(1.25, 1998 * step_s)), rel=0.2)
    for name in ("long", "shorter"):
        engine.loop.abort(name)


@pytest.mark.parametrize("way", ["finish", "abort", "expiry", "failed step", "spoiled", "retirement", "bad adapter"])
def test_every_way_out_gives_the_place_back(way: str) -> None:
    engine, cap = stepped_engine(ttft_deadline_s=30.0, load_delay=3), Cap("anna", 1, 1)
    adapter = {"bad adapter": "bad", "retirement": "red", "expiry": "red"}.get(way, "")
    if way == "expiry":
        engine.engine.loader.delay = 10**6
    submit(engine, "r", cap, n=2, adapter=adapter)
    assert present(engine) == (1, 1)
    if way == "spoiled":
        engine.engine.runner.not_finite |= {"r", "r#1"}
    if way == "failed step":
        engine.step()
        engine.engine.runner.fail_next = True
    if way == "abort":
        engine.step()
        engine.loop.abort("r")
        engine.loop.abort("r#1")
    if way == "retirement":
        engine.loop.retire(AdapterKey("tenant", "red"), force=True)
    if way == "expiry":
        engine.now += 60.0
    engine.step_until(lambda: not engine.scheduler.n_running and not engine.scheduler.n_waiting)
    assert present(engine) == (0, 0)
    submit(engine, "next", cap)
