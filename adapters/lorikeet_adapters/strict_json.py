"""JSON as the standard means it: one meaning per text, bounded depth and numbers, no NaN.

The standard library's parser keeps the last of two equal keys, takes NaN and Infinity, and recurses as deep as
the text asks. Here each of these is an error with a code; a message says where, never what.
"""

from __future__ import annotations

import json
import math
import re
from typing import Final, Literal, NoReturn

JsonCode = Literal["invalid_json", "duplicate_key", "invalid_unicode", "json_too_deep"]

MAX_INTEGER_DIGITS: Final = 20

# A string also matches when its end is missing, and nothing can be given back: the scan stays linear in the text.
_STRING_OR_BRACKET: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
_SURROGATE_HINT: Final = re.compile(r"\\u[dD][89a-fA-F]")
_COLON: Final = re.compile(r"[ \t\r\n]*:")
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)


class StrictJsonError(ValueError):
    """The text is not strict JSON."""

    def __init__(self, code: JsonCode, message: str) -> None:
        super().__init__(message)
        self.code: JsonCode = code
        self.message = message


class _DuplicateKey(Exception):
    """Raised inside the parser, which does not know its own position there."""


def loads(data: bytes | str, *, max_depth: int = 64) -> object:
    """The value of `data`; raises StrictJsonError."""
    text = _decode(data)
    _check_depth(text, max_depth)
    try:
        value: object = json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_float,
            parse_constant=_refuse_constant,
        )
    except json.JSONDecodeError as error:
        raise StrictJsonError("invalid_json", f"The text is not JSON at character {error.pos}.") from None
    except _DuplicateKey:
        where = f"the key at character {_find_duplicate(text)}"
        raise StrictJsonError("duplicate_key", f"An object has {where} twice.") from None
    except RecursionError:
        raise _too_deep(max_depth, None) from None
    if _SURROGATE_HINT.search(text):
        _check_surrogates(text)
    return value


def _decode(data: bytes | str) -> str:
    try:
        if isinstance(data, str):
            data.encode("utf-8")
            return data
        return data.decode("utf-8")
    except UnicodeError as error:
        start = error.start if isinstance(error, UnicodeEncodeError | UnicodeDecodeError) else 0
        raise StrictJsonError("invalid_unicode", f"The text is not UTF-8 at position {start}.") from None


def _check_depth(text: str, max_depth: int) -> None:
    if text.count("[") + text.count("{") <= max_depth:
        return
    depth = 0
    for token in _STRING_OR_BRACKET.finditer(text):
        first = text[token.start()]
        if first in "[{":
            depth += 1
            if depth > max_depth:
                raise _too_deep(max_depth, token.start())
        elif first in "]}":
            depth -= 1


def _too_deep(max_depth: int, position: int | None) -> StrictJsonError:
    where = "" if position is None else f" at character {position}"
    return StrictJsonError("json_too_deep", f"The text nests deeper than {max_depth} levels{where}.")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise _DuplicateKey
    return result


def _find_duplicate(text: str) -> int:
    """Where the first repeated key stands; the parser found one but does not say where."""
    open_objects: list[set[str]] = []
    for token in _STRING_OR_BRACKET.finditer(text):
        first = token[0][0]
        if first in "[{":
            open_objects.append(set())
        elif first in "]}":
            open_objects.pop()
        elif _COLON.match(text, token.end()):
            key = json.loads(token[0])
            if key in open_objects[-1]:
                return token.start()
            open_objects[-1].add(key)
    return len(text)


def _integer(digits: str) -> int:
    if len(digits.lstrip("-")) > MAX_INTEGER_DIGITS:
        raise StrictJsonError("invalid_json", f"An integer has more than {MAX_INTEGER_DIGITS} digits.")
    return int(digits)


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise StrictJsonError("invalid_json", "A number is too large.")
    return value


def _refuse_constant(_name: str) -> NoReturn:
    raise StrictJsonError("invalid_json", "NaN and Infinity are not JSON.")


def _check_surrogates(text: str) -> None:
    """Half of a surrogate pair is no character and could not be written out again.

    The text has been parsed by now, so every backslash stands inside a string and begins an escape.
    """
    high_end: int | None = None
    for escape in _ESCAPE.finditer(text):
        unit = int(escape[1], 16) if escape[1] else 0
        is_low = 0xDC00 <= unit <= 0xDFFF
        follows_high = high_end == escape.start()
        if (high_end is not None and not (follows_high and is_low)) or (is_low and not follows_high):
            raise StrictJsonError("invalid_unicode", f"An escape at character {escape.start()} is half of a pair.")
        high_end = escape.end() if 0xD800 <= unit <= 0xDBFF else None
    if high_end is not None:
        raise StrictJsonError("invalid_unicode", f"The escape before character {high_end} is half of a pair.")
