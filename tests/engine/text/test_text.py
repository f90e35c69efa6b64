"""Pieces of text join to the text of the whole, and no part of a stop string is ever shown."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorikeet_engine.text.detokenizer import Detokenizer
from lorikeet_engine.text.stop_strings import StopStrings


def decode_bytes(tokens: Sequence[int]) -> str:
    """A byte-level vocabulary: token i is byte i."""
    return bytes(tokens).decode("utf-8", errors="replace")


def stream(tokens: Sequence[int]) -> list[str]:
    detokenizer = Detokenizer(decode_bytes)
    return [*(detokenizer.push(token) for token in tokens), detokenizer.finish()]


@pytest.mark.parametrize("text", ["é", "汉字", "👩‍👩‍👧‍👦 family", "naïve café – 汉", "plain"])
def test_characters_of_several_tokens_never_show_as_replacement_marks(text: str) -> None:
    pieces = stream(text.encode())
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)


def test_bytes_that_never_become_a_character_come_out_at_the_end() -> None:
    tokens = [*b"abc", 0xE6, 0xB1]
    pieces = stream(tokens)
    assert "".join(pieces) == decode_bytes(tokens)
    assert pieces[-1] == "\ufffd"


@given(st.lists(st.text(max_size=6), max_size=6).map(lambda parts: "".join(parts).encode()))
def test_pieces_join_to_the_whole_text(data: bytes) -> None:
    assert "".join(stream(data)) == decode_bytes(data)


def cut(pieces: Sequence[str], stops: tuple[str, ...]) -> tuple[list[str], bool]:
    matcher, shown = StopStrings(stops), []
    for piece in pieces:
        result = matcher.push(piece)
        shown.append(result.text)
        if result.stopped:
            return shown, True
    return [*shown, matcher.finish()], False


@pytest.mark.parametrize(
    "pieces", [["one EN", "D two"], ["one E", "N", "D"], ["one ", "E", "N", "D", "x"], ["one END"]]
)
def test_a_stop_string_over_several_pieces_is_cut_whole(pieces: list[str]) -> None:
    shown, stopped = cut(pieces, ("END",))
    assert "".join(shown) == "one "
    assert stopped


def test_a_beginning_that_does_not_complete_is_released() -> None:
    shown, stopped = cut(["one EN", "try", " EN"], ("END",))
    assert "".join(shown) == "one ENtry EN"
    assert shown[0] == "one "
    assert not stopped


@given(
    st.lists(st.text(alphabet="ab", max_size=4), max_size=12),
    st.lists(st.text(alphabet="ab", min_size=1, max_size=4), max_size=3),
)
def test_streamed_text_equals_the_whole_text_cut_at_the_first_stop(pieces: list[str], stops: list[str]) -> None:
    whole = "".join(pieces)
    shown, stopped = cut(pieces, tuple(stops))
    # The stream stops at the first piece that completes a stop string; inside it, at the earliest match.
    seen, expected, found = "", whole, False
    for piece in pieces:
        seen += piece
        positions = [at for stop in stops if (at := seen.find(stop)) >= 0]
        if positions:
            expected, found = seen[: min(positions)], True
            break
    assert "".join(shown) == expected
    assert stopped == found
