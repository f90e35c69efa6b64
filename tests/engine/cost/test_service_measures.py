"""What users get: targets met, and shares that are fair."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorikeet_engine.cost import attainment, goodput, jain_index


def test_refusing_work_does_not_look_like_success() -> None:
    assert attainment(met=8, missed=2, rejected=0, expired=0) == 0.8
    assert attainment(met=8, missed=0, rejected=1, expired=1) == 0.8


def test_where_nothing_was_asked_nothing_was_missed() -> None:
    assert attainment(met=0, missed=0, rejected=0, expired=0) == 1.0


def test_goodput_counts_only_what_met_its_targets() -> None:
    assert goodput(30, 60.0) == 0.5


def test_equal_shares_are_fair_and_a_monopoly_is_not() -> None:
    assert jain_index([3.0, 3.0, 3.0, 3.0]) == 1.0
    assert jain_index([5.0, 0.0, 0.0, 0.0]) == 0.25
    assert jain_index([1.0, 2.0, 3.0]) == pytest.approx(36 / 42)


def test_nobody_served_is_fair() -> None:
    assert jain_index([]) == 1.0
    assert jain_index([0.0, 0.0]) == 1.0


@given(st.lists(st.floats(0.001, 1e6), min_size=1, max_size=20), st.floats(0.01, 100))
def test_fairness_lies_between_one_share_and_all_and_knows_no_unit(values: list[float], unit: float) -> None:
    index = jain_index(values)
    assert 1 / len(values) - 1e-9 <= index <= 1 + 1e-9
    assert jain_index([value * unit for value in values]) == pytest.approx(index)
