"""Percentiles, exact where values are kept and within a bin where they are counted."""

from __future__ import annotations

from random import Random

import pytest

from lorikeet_engine.simulation.report.samples import Gaps, distribution, gap_distribution, percentile


def test_gaps_are_as_good_as_sorted_values_to_the_width_of_a_bin() -> None:
    source, gaps = Random(1), Gaps()
    values = sorted(source.lognormvariate(-4, 1) for _ in range(5000))
    for value in values:
        gaps.add(value)
    for share in (0.1, 0.5, 0.9, 0.99, 1.0):
        assert gaps.percentile(share) == pytest.approx(percentile(values, share), rel=0.01)
    assert gap_distribution(gaps)["mean"] == pytest.approx(sum(values) / 5000)


def test_merged_gaps_are_all_gaps() -> None:
    parts = [Gaps(), Gaps()]
    parts[0].add(0.01)
    parts[1].add(0.03)
    parts[1].add(0.03)
    merged = Gaps().merge(parts)
    assert len(merged) == 3
    assert merged.percentile(0.5) == pytest.approx(0.03, rel=0.001)


def test_a_gap_of_nothing_is_counted() -> None:
    gaps = Gaps()
    gaps.add(0.0)
    assert len(gaps) == 1


def test_percentiles_lie_between_neighbours() -> None:
    assert percentile([1.0, 2.0, 3.0], 0.5) == 2.0
    assert percentile([1.0, 2.0], 0.25) == 1.25
    assert percentile([], 0.5) == 0.0
    assert distribution([])["mean"] == 0.0
