"""The gate: what counts in which order, what is given back, what is told; 0 lets nothing through (R-19, R-20)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from lorikeet_platform.auth.principal import Principal
from lorikeet_platform.clock import HOUR, SECOND
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.limits.effective import Figures, effective_limits
from lorikeet_platform.limits.gating.gate import LimitGate, Passage
from lorikeet_platform.limits.gating.headers import duration
from lorikeet_platform.limits.rates.local import LocalBuckets
from lorikeet_platform.limits.standard import STANDARD
from lorikeet_platform.telemetry.limits import LimitMetrics


@dataclass
class Gate:
    """A gate, its clock, and its metrics."""

    now: int = HOUR
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def __post_init__(self) -> None:
        self.gate = LimitGate(LocalBuckets(lambda: self.now), LimitMetrics(self.registry))

    def admitted(self, caller: Principal, n_tokens: int = 1) -> Passage:
        passage = self.gate.enter(caller)
        self.gate.admit(passage, n_tokens)
        return passage

    def refusal(self, act: Callable[[], object]) -> PlatformError:
        with pytest.raises(PlatformError) as refused:
            act()
        return refused.value

    def decisions(self) -> dict[str, float]:
        lines = generate_latest(self.registry).decode().splitlines()
        name = "lorikeet_gateway_ratelimit_decisions_total"
        found = (line.removeprefix(name).split(" ") for line in lines if line.startswith(name))
        return {labels: float(value) for labels, value in found if float(value)}


@pytest.fixture
def gate() -> Gate:
    return Gate()


def caller(tenant: Figures, key: Figures | None = None, *, key_id: str = "key_1", subject: str = "") -> Principal:
    return Principal(
        tenant_id="ten_1",
        tenant_slug="harbour",
        tenant_status="active",
        key_id=key_id,
        subject_id=subject or key_id,
        scopes=frozenset(),
        allowed_adapters=None,
        networks=(),
        limits=effective_limits(STANDARD, tenant, key or {}),
        expires_at=None,
        weight=1.0,
        cache_salt=b"",
    )


def test_requests_pass_up_to_the_burst_and_the_next_is_told_exactly_when(gate: Gate) -> None:
    asks = caller({"rpm": (60, 10)})
    for _ in range(10):
        gate.gate.enter(asks)
    refused = gate.refusal(lambda: gate.gate.enter(asks))
    assert (refused.code, refused.param, refused.retry_after_ms, refused.is_retryable) == (
        "rate_limit_exceeded",
        "requests",
        1000,
        True,
    )
    assert "The tenant's limit is 60 requests a minute, 10 at once" in refused.message
    gate.now += SECOND - 1
    assert gate.refusal(lambda: gate.gate.enter(asks)).retry_after_ms == 1
    gate.now += 1
    gate.gate.enter(asks)


def test_a_key_with_a_limit_of_its_own_has_a_bucket_of_its_own_inside_the_tenants(gate: Gate) -> None:
    narrow = caller({"rpm": (60, 3)}, {"rpm": (60, 1)})
    other = caller({"rpm": (60, 3)}, key_id="key_2")
    gate.gate.enter(narrow)
    refused = gate.refusal(lambda: gate.gate.enter(narrow))
    assert "The key's limit" in refused.message
    gate.gate.enter(other)
    gate.gate.enter(other)  # the tenant's bucket was not charged for what the key's refused
    assert "The tenant's limit" in gate.refusal(lambda: gate.gate.enter(other)).message


def test_a_rotated_key_goes_on_with_its_lineages_bucket(gate: Gate) -> None:
    own: Figures = {"rpm": (60, 1)}
    gate.gate.enter(caller({}, own))
    gate.refusal(lambda: gate.gate.enter(caller({}, own, key_id="key_2", subject="key_1")))


def test_n_65_tokens_that_were_not_used_come_back(gate: Gate) -> None:
    asks = caller({"tpm": (1000, 1000)})
    first = gate.admitted(asks, 900)
    refused = gate.refusal(lambda: gate.admitted(asks, 200))
    assert (refused.code, refused.param, refused.retry_after_ms) == ("rate_limit_exceeded", "tokens", 6000)
    gate.gate.leave(first, 150)
    assert gate.admitted(asks, 850).headers["x-ratelimit-remaining-tokens"] == "0"


def test_n_65_of_fifty_at_the_edge_as_many_pass_as_fit(gate: Gate) -> None:
    asks, outcomes = caller({"tpm": (1000, 1000)}), Counter[str]()

    def ask() -> None:
        try:
            gate.admitted(asks, 99)
        except PlatformError as refused:
            outcomes[refused.param or ""] += 1
        else:
            outcomes["passed"] += 1

    threads = [threading.Thread(target=ask) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == {"passed": 10, "tokens": 40}


def test_more_tokens_than_ever_pass_at_once_are_no_matter_of_waiting(gate: Gate) -> None:
    asks = caller({"tpm": (1000, 500)}, {"tpm": (1000, 200)})
    refused = gate.refusal(lambda: gate.admitted(asks, 201))
    assert (refused.code, refused.kind.status, refused.retry_after_ms) == ("request_exceeds_tpm", 400, None)
    assert "201 tokens" in refused.message
    assert "key's limit lets 200" in refused.message


def test_as_many_run_as_may_and_a_place_is_free_again_exactly_once(gate: Gate) -> None:
    asks = caller({"concurrent": (2, None)})
    first, _second = gate.admitted(asks), gate.admitted(asks)
    assert gate.refusal(lambda: gate.gate.enter(asks)).code == "concurrency_limit_exceeded"
    gate.gate.leave(first, 1)
    gate.gate.leave(first, 1)
    gate.admitted(asks)
    assert gate.refusal(lambda: gate.gate.enter(asks)).code == "concurrency_limit_exceeded"


def test_of_two_that_saw_the_last_place_free_one_gets_it(gate: Gate) -> None:
    asks = caller({}, {"concurrent": (1, None)})
    first, second = gate.gate.enter(asks), gate.gate.enter(asks)
    gate.gate.admit(first, 1)
    assert "The key's limit is 1 requests" in gate.refusal(lambda: gate.gate.admit(second, 1)).message


def test_r_19_what_was_taken_is_given_back_when_a_later_limit_refuses_but_the_request_counts(gate: Gate) -> None:
    asks = caller({"rpm": (60, 10), "concurrent": (1, None), "tpm": (1000, 1000)})
    running = gate.admitted(asks, 800)
    gate.gate.leave(running, 800)
    gate.refusal(lambda: gate.admitted(asks, 300))  # no tokens: its place is free again
    last = gate.admitted(asks, 200)
    assert last.headers["x-ratelimit-remaining-requests"] == "7"  # the refused one counted
    gate.refusal(lambda: gate.gate.enter(asks))
    gate.gate.leave(last, 200)
    looked = gate.gate.enter(asks)
    assert (looked.requests.remaining, looked.tokens.remaining) == (5, 0)


@pytest.mark.parametrize("burst", [0, None])
def test_zero_lets_nothing_through_and_asking_again_does_not_help(gate: Gate, burst: int | None) -> None:
    for figures, act in (
        ({"rpm": (0 if burst is None else 60, burst)}, gate.gate.enter),
        ({"tpm": (0 if burst is None else 60, burst)}, gate.admitted),
        ({"concurrent": (0, None)}, gate.gate.enter),
    ):
        refused = gate.refusal(lambda act=act, figures=figures: act(caller(figures)))  # type: ignore[misc]
        assert refused.kind.status == 429
        assert (refused.is_retryable, refused.retry_after_ms) == (False, None)
        assert "limit is 0" in refused.message
        assert refused.headers["x-ratelimit-limit-requests"]


def test_headers_tell_of_the_tightest_bucket(gate: Gate) -> None:
    asks = caller({"rpm": (600, 100), "tpm": (60_000, 6000)}, {"rpm": (60, 10), "tpm": (60_000, 6000)})
    gate.admitted(caller({"rpm": (600, 100), "tpm": (60_000, 6000)}, key_id="key_2"), 1500)
    assert gate.admitted(asks, 500).headers == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "9",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-limit-tokens": "60000",
        "x-ratelimit-remaining-tokens": "4000",
        "x-ratelimit-reset-tokens": "2s",
    }


def test_a_refusal_has_them_too(gate: Gate) -> None:
    asks = caller({"rpm": (60, 1)})
    gate.gate.enter(asks)
    refused = gate.refusal(lambda: gate.gate.enter(asks))
    assert refused.headers["x-ratelimit-remaining-requests"] == "0"
    assert refused.headers["x-ratelimit-reset-requests"] == "1s"


@pytest.mark.parametrize(
    ("micros", "shown"),
    [(0, "0s"), (1, "1ms"), (250_000, "250ms"), (999_001, "1s"), (1_000_001, "2s"), (360 * SECOND, "6m0s")],
)
def test_durations_are_written_as_openai_writes_them_and_never_too_short(micros: int, shown: str) -> None:
    assert duration(micros) == shown


def test_decisions_are_counted_by_dimension(gate: Gate) -> None:
    asks = caller({"rpm": (60, 2), "tpm": (60, 10)})
    gate.admitted(asks, 10)
    gate.refusal(lambda: gate.admitted(asks, 10))
    gate.refusal(lambda: gate.gate.enter(asks))
    assert gate.decisions() == {
        '{decision="passed",dimension="rpm"}': 2,
        '{decision="refused",dimension="rpm"}': 1,
        '{decision="passed",dimension="concurrent"}': 2,
        '{decision="passed",dimension="tpm"}': 1,
        '{decision="refused",dimension="tpm"}': 1,
    }
