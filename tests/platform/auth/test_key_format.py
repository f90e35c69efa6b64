"""The shape of a key, which scanners and double clicks rely on."""

from __future__ import annotations

import re
import zlib

from hypothesis import assume, given
from hypothesis import strategies as st

from lorikeet_platform.auth.key_format import (
    BASE62,
    KEY_PATTERN,
    NewKey,
    checksum,
    is_well_formed,
    new_key,
    public_id_of,
)


@given(st.builds(new_key))
def test_every_new_key_has_the_published_shape_and_checksum(key: NewKey) -> None:
    assert re.fullmatch(KEY_PATTERN, key.text)
    assert len(key.text) == 54
    assert is_well_formed(key.text)
    assert key.text[3:15] == key.public_id == public_id_of(key.text)
    assert key.text[44:48] == key.hint


@given(st.integers(0, 53), st.sampled_from(BASE62 + "_-é\n\x00"))
def test_a_key_with_one_other_character_is_not_well_formed(place: int, character: str) -> None:
    key = new_key().text
    assume(key[place] != character)
    assert not is_well_formed(key[:place] + character + key[place + 1 :])


@given(st.text(max_size=80))
def test_nothing_else_is_well_formed(text: str) -> None:
    assert not is_well_formed(text)


@given(st.text(alphabet=BASE62 + "_", max_size=60))
def test_the_checksum_is_the_crc32_in_base62(body: str) -> None:
    value = 0
    for digit in checksum(body):
        value = value * 62 + BASE62.index(digit)
    assert value == zlib.crc32(body.encode())


def test_a_key_does_not_show_itself_in_a_repr() -> None:
    key = new_key()
    assert key.text not in repr(key)
