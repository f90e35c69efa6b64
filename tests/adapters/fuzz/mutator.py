"""Small damage to bytes and to JSON, the same on every machine for the same seed.

Knows neither safetensors nor PEFT: a test gives it sound files and the values that are worth putting into them.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from typing import Any

NUMBERS: tuple[object, ...] = (
    0, 1, -1, 2, 7, 8, 16, 64, 255, 2**16, 2**20, 2**20 + 1, 2**31, 2**31 - 1, 2**32, 2**53, 2**62, 2**63, 2**64,
    10**19, 0.0, 1.0, 1.5, -0.5, 1e300, True, False, None,
)  # fmt: skip
JUNK: tuple[object, ...] = (*NUMBERS, "", "a", "0", "default", "\u00e9", "\x00", [], {}, [[]], [1], [0, 0], {"a": 1})
TOKENS = (b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"\\u0000", b"\\ud800", b" ", b"\n", b"\0", b"\xff", b"NaN",
          b"null", b"true", b"1e5", b"-1", b"0", b"00", b"9999999999999999999999", b"/*", b"\xef\xbb\xbf")  # fmt: skip


class Mutator:
    """Makes one damaged copy after another."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def bytes_of(self, data: bytes, others: Sequence[bytes]) -> bytes:
        """`data` with one to three changes, some of them pieces of the others."""
        changed = bytearray(data)
        for _ in range(self.random.choice((1, 1, 1, 2, 3))):
            self._change(changed, others)
        return bytes(changed)

    def json_of(self, value: Any, values: Sequence[object] = JUNK) -> Any:
        """`value` with one to three of its parts changed; the original is left alone."""
        changed = copy.deepcopy(value)
        for _ in range(self.random.choice((1, 1, 1, 2, 3))):
            changed = self._change_json(changed, values)
        return changed

    def _change(self, data: bytearray, others: Sequence[bytes]) -> None:
        rng = self.random
        at = rng.randrange(len(data) + 1)
        length = rng.choice((1, 1, 1, 2, 4, 8, 64))
        match rng.randrange(7):
            case 0 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(data):
                data[at] = rng.randrange(256)
            case 2:
                del data[at : at + length]
            case 3:
                data[at:at] = data[at : at + length]
            case 4:
                data[at:at] = rng.choice(TOKENS)
            case 5:
                data[at : at + length] = rng.choice(TOKENS)
            case _:
                other = rng.choice(others)
                begin = rng.randrange(len(other))
                data[at : at + length] = other[begin : begin + length]

    def _change_json(self, value: Any, values: Sequence[object]) -> Any:
        rng = self.random
        parts = _containers(value)
        if not parts:
            return copy.deepcopy(rng.choice(values))
        part = rng.choice(parts)
        if isinstance(part, dict):
            self._change_object(part, values)
        else:
            self._change_list(part, values)
        return value

    def _change_object(self, part: dict[str, Any], values: Sequence[object]) -> None:
        rng = self.random
        keys = list(part)
        key = rng.choice(keys) if keys else "key"
        match rng.randrange(6):
            case 0:
                part.pop(key, None)
            case 1:
                part[self._other_text(key)] = copy.deepcopy(part.get(key))
            case 2 if key in part:
                part[self._other_text(key)] = part.pop(key)
            case 3 if len(keys) > 1:
                other = rng.choice(keys)
                part[key], part[other] = part[other], part[key]
            case _:
                part[key] = self._other_value(part.get(key), values)

    def _change_list(self, part: list[Any], values: Sequence[object]) -> None:
        rng = self.random
        at = rng.randrange(len(part) + 1)
        match rng.randrange(4):
            case 0 if at < len(part):
                del part[at]
            case 1:
                part.insert(at, copy.deepcopy(rng.choice(values)))
            case 2:
                rng.shuffle(part)
            case _ if at < len(part):
                part[at] = self._other_value(part[at], values)
            case _:
                part.append(copy.deepcopy(rng.choice(values)))

    def _other_value(self, value: Any, values: Sequence[object]) -> Any:
        rng = self.random
        if isinstance(value, int) and rng.random() < 0.6:
            return value + rng.choice((-8, -4, -2, -1, 1, 2, 4, 8))
        if isinstance(value, str) and rng.random() < 0.5:
            return self._other_text(value)
        return copy.deepcopy(rng.choice(values))

    def _other_text(self, text: str) -> str:
        rng = self.random
        if not text:
            return rng.choice(("a", "q_proj", "."))
        at = rng.randrange(len(text))
        piece = rng.choice(("", text[at] * 2, ".", "*", "0", "1", "A", "_", "\u00e9", "\\d", "|", "("))
        return text[:at] + piece + text[at + 1 :]


def _containers(value: Any) -> list[Any]:
    """Every object and list inside `value`, and itself."""
    found: list[Any] = []
    open_parts = [value]
    while open_parts:
        part = open_parts.pop()
        if isinstance(part, dict):
            found.append(part)
            open_parts += part.values()
        elif isinstance(part, list):
            found.append(part)
            open_parts += part
    return found
