"""Totals that stay true while what is told apart stays bounded."""

from __future__ import annotations

from lorikeet_engine.scheduling.counters import KEPT_OWNERS, OTHERS, SchedulerCounters


def test_prefixes_of_many_owners_are_told_apart_within_bounds_and_their_totals_kept() -> None:
    counters = SchedulerCounters()
    n = 3 * KEPT_OWNERS
    for i in range(n):
        counters.count_prefix((f"tenant {i}", "adapter"), n_tokens=10, n_hit=4)
        assert len(counters.prefix_queries) <= KEPT_OWNERS + 1
        assert counters.prefix_hits.keys() == counters.prefix_queries.keys()
    assert counters.prefix_queries.total() == 10 * n
    assert counters.prefix_hits.total() == 4 * n
    assert counters.prefix_queries[f"tenant {n - 1}", "adapter"] == 10
    assert counters.prefix_queries[OTHERS] >= 10 * (n - KEPT_OWNERS - 1)


def test_who_becomes_one_of_the_others_can_be_told_apart_again_later() -> None:
    counters = SchedulerCounters()
    for i in range(KEPT_OWNERS + 10):
        counters.count_prefix((f"{i}", ""), n_tokens=1, n_hit=0)
    counters.count_prefix(("0", ""), n_tokens=5, n_hit=3)
    assert (counters.prefix_queries["0", ""], counters.prefix_hits["0", ""]) == (5, 3)
    assert counters.prefix_queries.total() == KEPT_OWNERS + 15
