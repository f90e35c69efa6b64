"""What is in force is the least that key, tenant and plan say, and it is known who said it."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorikeet_platform.db.tables import limit
from lorikeet_platform.limits.effective import DIMENSIONS, WITH_BURST, Figures, Limit, effective_limits
from lorikeet_platform.limits.standard import STANDARD

PLAN: Final[Figures] = {**STANDARD, "rpm": (100, 10), "keys": (5, None)}
FIGURES = st.integers(0, 1000).flatmap(
    lambda value: st.tuples(st.just(value), st.one_of(st.none(), st.integers(0, max(0, value))))
)


@pytest.mark.parametrize(
    ("tenant", "key", "value", "origin"),
    [
        (None, None, 100, "plan"),
        (50, None, 50, "tenant"),
        (200, None, 100, "plan"),
        (None, 70, 70, "key"),
        (50, 70, 50, "tenant"),
        (200, 300, 100, "plan"),
        (100, 100, 100, "key"),
        (0, 70, 0, "tenant"),
        (50, 0, 0, "key"),
    ],
)
def test_the_smallest_counts_and_names_who_said_it(
    tenant: int | None, key: int | None, value: int, origin: str
) -> None:
    limits = effective_limits(
        PLAN,
        {} if tenant is None else {"rpm": (tenant, None)},
        {} if key is None else {"rpm": (key, None)},
    )
    assert (limits["rpm"].value, limits["rpm"].origin) == (value, origin)


def test_nobody_has_more_at_once_than_the_plan_gives() -> None:
    limits = effective_limits(PLAN, {"rpm": (50, 50)}, {"rpm": (30, 3)})
    assert limits.of_tenant["rpm"] == Limit(50, 10, "tenant")
    assert limits.of_key["rpm"] == Limit(30, 3, "key")
    assert effective_limits(PLAN, {"rpm": (500, 5)}, {})["rpm"] == Limit(100, 5, "plan")


def test_without_a_burst_a_minutes_worth_may_come_at_once() -> None:
    limits = effective_limits({**PLAN, "tpm": (900, None)}, {}, {})
    assert limits["tpm"] == Limit(900, 900, "plan")


@given(FIGURES, FIGURES, FIGURES, st.booleans(), st.booleans())
def test_what_is_in_force_is_never_more_than_anybody_says(
    plan: tuple[int, int | None],
    tenant: tuple[int, int | None],
    key: tuple[int, int | None],
    of_tenant: bool,
    of_key: bool,
) -> None:
    said = [plan, *([tenant] if of_tenant else []), *([key] if of_key else [])]
    limits = effective_limits(
        {**PLAN, "rpm": plan}, {"rpm": tenant} if of_tenant else {}, {"rpm": key} if of_key else {}
    )
    assert limits["rpm"].value == min(value for value, _ in said)
    assert limits["rpm"].burst == min(value if burst is None else burst for value, burst in said)


def test_a_plan_says_something_of_everything_and_the_tables_take_it() -> None:
    assert set(STANDARD) == set(DIMENSIONS) == set(limit.DIMENSIONS)
    assert {name for name, (_, burst) in STANDARD.items() if burst is not None} == WITH_BURST
    with pytest.raises(KeyError):
        effective_limits({"rpm": (1, None)}, {}, {})
