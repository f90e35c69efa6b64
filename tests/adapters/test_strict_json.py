"""One meaning per text; whatever could have two, or none, is an error with a code."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorikeet_adapters.strict_json import StrictJsonError, loads

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**19), 10**19)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def code_of(data: bytes | str, **options: Any) -> str:
    with pytest.raises(StrictJsonError) as caught:
        loads(data, **options)
    assert caught.value.message.endswith(".")
    return caught.value.code


@given(VALUES, st.booleans())
def test_what_the_standard_library_writes_is_read_back(value: object, escaped: bool) -> None:
    text = json.dumps(value, ensure_ascii=escaped)
    assert loads(text) == value
    assert loads(text.encode()) == value


@pytest.mark.parametrize(
    ("code", "data"),
    [
        ("invalid_json", b""),
        ("invalid_json", b"{"),
        ("invalid_json", b"{} {}"),
        ("invalid_json", b"{'a': 1}"),
        ("invalid_json", b'"a\nb"'),
        ("invalid_json", b"[1,]"),
        ("invalid_json", b"NaN"),
        ("invalid_json", b"-Infinity"),
        ("invalid_json", b"[1e400]"),
        ("invalid_json", b"1" * 21),
        ("invalid_json", b"-" + b"1" * 5000),
        ("invalid_json", b"\xef\xbb\xbf{}"),
        ("duplicate_key", b'{"a": 1, "b": {"c": 1, "c": 1}}'),
        ("duplicate_key", b'{"a": 1, "\\u0061": 2}'),
        ("invalid_unicode", b'"\xff"'),
        ("invalid_unicode", b'"\xed\xa0\x80"'),
        ("invalid_unicode", '"\ud800"'),
        ("invalid_unicode", b'"\\ud800"'),
        ("invalid_unicode", b'"\\udc00"'),
        ("invalid_unicode", b'"\\ud800x\\udc00"'),
        ("invalid_unicode", b'["\\ud800", "\\udc00"]'),
        ("invalid_unicode", b'{"\\uDBFF\\n": 1}'),
        ("json_too_deep", b"[" * 65 + b"]" * 65),
        ("json_too_deep", b"[" * 100_000),
        ("json_too_deep", b'{"a":' * 100_000),
    ],
)
def test_a_text_with_no_single_meaning_is_an_error(code: str, data: bytes | str) -> None:
    assert code_of(data) == code


def test_depth_is_counted_outside_strings_only() -> None:
    assert loads(b"[" * 64 + b"]" * 64) is not None
    assert loads(json.dumps(["[" * 500 + '\\"' + "{" * 500])) == ["[" * 500 + '\\"' + "{" * 500]
    assert code_of(b'["\\\\", [[1]]]', max_depth=2) == "json_too_deep"
    assert loads(b"[[1], [2], [3]]", max_depth=2) == [[1], [2], [3]]


def test_a_pair_of_escapes_is_one_character_and_an_escaped_backslash_is_none() -> None:
    assert loads(b'"\\ud83d\\ude00"') == "\U0001f600"
    assert loads(b'"\\\\ud83d"') == "\\ud83d"


def test_messages_say_where_and_never_what() -> None:
    with pytest.raises(StrictJsonError, match="character 11") as caught:
        loads(b'{"secret": hunter2}')
    assert "hunter2" not in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "position"),
    [
        (b'{"a": 1, "a": 2}', 9),
        (b'{"a": {"a": "a"}, "b": ["a", {"a": 1, "\\u0061" : 2}]}', 38),
        (b'[{"]": 1}, {"x": "{\\"", "]": 1, "x": 1}]', 32),
    ],
)
def test_a_repeated_key_is_found_where_it_stands(data: bytes, position: int) -> None:
    with pytest.raises(StrictJsonError, match=f"character {position} ") as caught:
        loads(data)
    assert caught.value.code == "duplicate_key"


@pytest.mark.parametrize("data", [b'["' + b'\\"' * 1_000_000, b"[" * 64 + b'"' + b"\\" * 2_000_001, b'["", ' * 300_000])
def test_the_time_is_linear_in_the_length_of_the_text(data: bytes) -> None:
    began = time.perf_counter()
    with pytest.raises(StrictJsonError):
        loads(data)
    assert time.perf_counter() - began < 2
