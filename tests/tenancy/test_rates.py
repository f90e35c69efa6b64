"""N-64 and N-65: rates hold over two gateways, without Redis too, and tokens that were not used come back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from lorikeet_platform.fleet import BEAT_EVERY_S
from tests.support.parallel import AtOnce, at_once
from tests.support.platform_parts import Tenant
from tests.support.served_model import ServedModel
from tests.support.stack import Stack, running_stack, wait_until
from tests.support.stack_place import Place, on_stack

BURST_OF_100 = 100
PROMPT = "0123456789"
TRIES = 5
LOST, FOUND = "rates are limited without Redis", "rates are limited by Redis again"


def a_tenant(place: Place, **limits: int | tuple[int, int]) -> Tenant:
    tenant = place.tenant()
    place.plenty(tenant)
    place.limit(tenant, **limits)
    return tenant


def ask(place: Place, tenant: Tenant, index: int, **fields: int) -> httpx.Response:
    return place.chat(tenant.secret, gateway=index % len(place.apis), content=PROMPT, **{"max_tokens": 1, **fields})


def ask_with(place: Place, key: str, index: int) -> httpx.Response:
    return place.chat(key, gateway=index % len(place.apis), max_tokens=1)


def with_redis(place: Place, scenario: Callable[[Place], None]) -> None:
    """Redis counts as lost for seconds when it takes longer than 20 ms, which a machine that tests keep busy can make
    it do. What holds then is another test's business: the scenario is tried again when it has answered again."""
    for _ in range(TRIES):
        wait_until(lambda: place.logs().count(FOUND) == place.logs().count(LOST), 60.0)
        n_lost = place.logs().count(LOST)
        try:
            scenario(place)
        except AssertionError:
            if place.logs().count(LOST) == n_lost:
                raise
            place.engine.forget()
        else:
            return
    raise AssertionError("Redis never answered in time")


def passed(answers: list[httpx.Response]) -> int:
    assert {answer.status_code for answer in answers} <= {200, 429}
    for answer in answers:
        if answer.status_code == 429:
            assert answer.json()["error"]["code"] == "rate_limit_exceeded"
            wait_ms = int(answer.headers["retry-after-ms"])
            assert 0 < wait_ms <= 120_000
            assert int(answer.headers["retry-after"]) == -(-wait_ms // 1000)
    return sum(answer.status_code == 200 for answer in answers)


def test_n_64_of_a_burst_of_100_no_more_pass_than_the_burst_and_what_time_gives(place: Place) -> None:
    with_redis(place, burst_of_100)


def burst_of_100(place: Place) -> None:
    tenant = a_tenant(place, rpm=(60, 10))
    began_s = time.monotonic()
    answers = at_once(BURST_OF_100, lambda index: ask(place, tenant, index))
    elapsed_s = time.monotonic() - began_s
    assert 10 <= passed(answers) <= 10 + elapsed_s
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.headers["x-ratelimit-limit-requests"] == "60"
    assert refused.headers["x-ratelimit-remaining-requests"] == "0"


def test_n_64_a_key_has_no_more_than_its_own_rate_and_shares_its_tenants(place: Place) -> None:
    with_redis(place, own_rate_and_shared)


def own_rate_and_shared(place: Place) -> None:
    tenant = a_tenant(place, rpm=(60, 10))
    keys = [place.key(tenant.slug, limits={"rpm": {"value": 60, "burst": 4}})["secret"] for _ in range(2)]
    began_s = time.monotonic()
    for key in keys:
        answers = at_once(10, partial(ask_with, place, key))
        assert 4 <= passed(answers) <= 4 + time.monotonic() - began_s
    rest = passed(at_once(10, lambda index: ask(place, tenant, index)))
    assert 2 <= rest <= 2 + time.monotonic() - began_s


def test_n_65_tokens_are_taken_before_and_what_was_not_used_comes_back(place: Place) -> None:
    with_redis(place, taken_and_given_back)


def taken_and_given_back(place: Place) -> None:
    tenant = a_tenant(place, tpm=(100, 100))
    place.engine.script(tenant.id, hold=True, tokens=1)
    too_large = ask(place, tenant, 0, max_tokens=91)
    assert (too_large.status_code, too_large.json()["error"]["code"]) == (400, "request_exceeds_tpm")
    first = AtOnce(1, lambda index: ask(place, tenant, index, max_tokens=70))
    wait_until(lambda: place.engine.state()["inside"] == 1)
    assert passed([ask(place, tenant, 1, max_tokens=70)]) == 0
    place.engine.script(tenant.id, hold=False)
    assert passed(first.results()) == 1
    wait_until(lambda: ask(place, tenant, 1, max_tokens=70).status_code == 200, 5.0)  # 69 of the first came back


def test_n_65_of_50_at_the_edge_no_more_pass_than_the_tokens_there_are(place: Place) -> None:
    with_redis(place, fifty_at_the_edge)


def fifty_at_the_edge(place: Place) -> None:
    tenant = a_tenant(place, tpm=(500, 500))
    place.engine.script(tenant.id, hold=True, tokens=0)
    began_s = time.monotonic()
    asked = AtOnce(50, lambda index: ask(place, tenant, index, max_tokens=40))
    wait_until(lambda: asked.n_done + place.engine.state()["inside"] == 50, 60.0)
    elapsed_s = time.monotonic() - began_s
    place.engine.script(tenant.id, hold=False)
    n_passed = passed(asked.results())
    assert n_passed >= 10
    assert n_passed * 50 <= 500 + 500 / 60 * elapsed_s


@pytest.fixture
def own_stack(model: ServedModel, short_folder: Path) -> Iterator[Stack]:
    """One whose Redis may be killed, with three gateways."""
    with running_stack(short_folder, model, n_gateways=3, with_worker=False) as stack:
        yield stack


@pytest.mark.slow
def test_n_64_three_gateways_that_lose_redis_in_a_burst_let_no_more_than_a_tenth_too_many_through(
    own_stack: Stack,
) -> None:
    rpm, burst = 1200, 60
    with on_stack(own_stack) as place:
        tenant = a_tenant(place, rpm=(rpm, burst))
        time.sleep(BEAT_EVERY_S + 1.0)  # until each gateway knows how many there are
        began_s = time.monotonic()
        answers = at_once(40, lambda index: ask(place, tenant, index))
        own_stack.redis.kill()
        while time.monotonic() - began_s < 6.0:
            answers += at_once(60, lambda index: ask(place, tenant, index))
        allowed = burst + rpm / 60 * (time.monotonic() - began_s)
        n_passed = passed(answers)
        assert n_passed <= 1.1 * allowed
        assert n_passed >= 0.5 * allowed, "without Redis nearly all were refused"
