"""Cursors: only those that were written for a list are read by it (N-11)."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorikeet_platform.auth.pepper import Pepper
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.web.pagination import ALL_TENANTS, Cursors, cut

PEPPER = Pepper(1, {1: b"a" * 32})
MINE = Cursors(PEPPER, "ten_a", "usage.records")


def refused(cursors: Cursors, cursor: str) -> bool:
    with pytest.raises(PlatformError) as caught:
        cursors.read(cursor)
    return (caught.value.code, caught.value.param) == ("invalid_value", "after")


@given(st.lists(st.text() | st.integers(), max_size=4))
def test_a_cursor_is_read_as_it_was_written(position: list[str | int]) -> None:
    assert MINE.read(MINE.write(position)) == position


def test_no_cursor_is_the_beginning() -> None:
    assert MINE.read(None) is None


@pytest.mark.parametrize(
    "writer",
    [
        Cursors(PEPPER, "ten_b", "usage.records"),
        Cursors(PEPPER, ALL_TENANTS, "usage.records"),
        Cursors(PEPPER, "ten_a", "audit_events"),
        Cursors(Pepper(1, {1: b"b" * 32}), "ten_a", "usage.records"),
        Cursors(Pepper(2, {2: b"c" * 32}), "ten_a", "usage.records"),
    ],
    ids=["another tenant", "the administrator", "another list", "another installation", "an unknown pepper"],
)
def test_n11_a_cursor_of_another_tenant_list_or_installation_is_refused(writer: Cursors) -> None:
    assert refused(MINE, writer.write([7, "req_x"]))


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda raw: base64.urlsafe_b64encode(raw).decode()))
def test_n11_what_a_caller_makes_up_is_refused(cursor: str) -> None:
    assert refused(MINE, cursor)


@given(st.integers(0, 255), st.data())
def test_n11_a_cursor_with_any_byte_changed_is_refused(value: int, data: st.DataObject) -> None:
    raw = bytearray(base64.urlsafe_b64decode(MINE.write([1764, "req_1"]) + "=="))
    place = data.draw(st.integers(0, len(raw) - 1))
    if raw[place] != value:
        raw[place] = value
        assert refused(MINE, base64.urlsafe_b64encode(raw).decode().rstrip("="))


def test_cursors_outlive_a_new_pepper_while_the_old_one_is_kept() -> None:
    written = MINE.write([5])
    both = Pepper(12, {12: b"c" * 32, 1: b"a" * 32})
    assert Cursors(both, "ten_a", "usage.records").read(written) == [5]
    only_new = Pepper(12, {12: b"c" * 32})
    assert refused(Cursors(only_new, "ten_a", "usage.records"), written)


def test_a_page_knows_whether_more_follows() -> None:
    assert cut([1, 2, 3], 2) == ([1, 2], True)
    assert cut([1, 2], 2) == ([1, 2], False)
    assert cut([], 2) == ([], False)
