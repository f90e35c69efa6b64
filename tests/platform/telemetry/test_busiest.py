"""However many names come, there are so many labels and no more; nothing is counted twice or not at all."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from lorikeet_platform.telemetry.busiest import OTHER, Busiest
from lorikeet_platform.telemetry.metrics import GatewayMetrics


class Hour:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 50), st.booleans()), max_size=200))
def test_there_are_never_more_labels_than_places_and_amounts_add_up(business: list[tuple[str, int, bool]]) -> None:
    clock, lost = Hour(), list[str]()
    totals, series = Counter[str](), Counter[str]()

    def end(name: str) -> None:
        lost.append(name)
        totals["ended"] += series.pop(name)

    busiest = Busiest(on_lost=end, places=3, term_s=10.0, clock=clock)
    for name, amount, is_over in business:
        clock.now += 11.0 if is_over else 0.1
        series[busiest.label(name, amount)] += amount
        assert len(series.keys() - {OTHER}) <= 3
    assert series.total() + totals["ended"] == sum(amount for _, amount, _ in business)


def test_a_newcomer_with_most_business_has_a_place_after_the_next_election_and_not_before() -> None:
    clock, lost = Hour(), list[str]()
    busiest = Busiest(on_lost=lost.append, places=2, term_s=60.0, clock=clock)
    assert [busiest.label(name, 1) for name in ("anna", "ben", "clara")] == ["anna", "ben", OTHER]
    assert busiest.label("clara", 100) == OTHER
    busiest.label("anna", 10)
    clock.now = 61.0
    assert busiest.label("clara", 1) == "clara"
    assert lost == ["ben"]
    assert busiest.label("ben", 1) == OTHER


def test_who_has_no_business_has_no_place_and_the_first_term_is_short() -> None:
    clock = Hour()
    busiest = Busiest(on_lost=lambda _: None, places=2, clock=clock)
    assert [busiest.label(name, 0) for name in ("anna", "ben")] == [OTHER, OTHER]
    assert [busiest.label(name, 1) for name in ("clara", "dora")] == ["clara", "dora"]
    assert busiest.label("emil", 1000) == OTHER
    clock.now = 61.0
    assert busiest.label("emil", 1) == "emil"


def test_ten_thousand_tenants_make_no_more_than_fifty_one_series_of_a_kind() -> None:
    registry = CollectorRegistry()
    metrics = GatewayMetrics(registry)
    for number in range(10_000):
        metrics.count_generation(f"ten_{number}", "ok", prompt=2, completion=1, cached=0)
    samples = [
        sample
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "lorikeet_gateway_tenant_tokens_total" and sample.labels["type"] == "prompt"
    ]
    assert len(samples) == 51
    assert sum(sample.value for sample in samples) == 20_000
