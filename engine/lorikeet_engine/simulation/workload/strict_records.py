"""Frozen dataclasses read from parsed YAML or JSON: every key known, every value of its field's type.

What is wrong is said with its place in the file (`tenants[0].arrivals.rate`), and nothing is guessed.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, TypeVar

Record = TypeVar("Record")


class DescriptionError(ValueError):
    """A description that cannot be simulated, in one sentence."""


def read_record(cls: type[Record], value: object, place: str) -> Record:
    """Build `cls` from a mapping.

    Raises:
        DescriptionError: an unknown or missing key, or a value of another type.
    """
    if not isinstance(value, Mapping):
        raise DescriptionError(f"{place or 'the description'} must be a mapping, not {_word(value)}")
    hints = _hints(cls)
    unknown = [str(key) for key in value if key not in hints]
    if unknown:
        raise DescriptionError(f"unknown key {_at(place, unknown[0])}; known here: {', '.join(hints)}")
    given = {key: _convert(hints[key], item, _at(place, key)) for key, item in value.items()}
    for field in fields(cls):  # type: ignore[arg-type]
        if field.name not in given and field.default is MISSING and field.default_factory is MISSING:
            raise DescriptionError(f"{_at(place, field.name)} is missing")
    try:
        return cls(**given)
    except DescriptionError as error:
        raise DescriptionError(f"{place + ': ' if place else ''}{error}") from None


def _convert(hint: Any, value: object, place: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        inner = next(argument for argument in arguments if argument is not type(None))
        return None if value is None else _convert(inner, value, place)
    if origin is tuple:
        if not isinstance(value, list):
            raise DescriptionError(f"{place} must be a list, not {_word(value)}")
        return tuple(_convert(arguments[0], item, f"{place}[{i}]") for i, item in enumerate(value))
    if origin is typing.Literal:
        if value not in arguments:
            raise DescriptionError(f"{place} is {value!r}; it must be one of {', '.join(map(str, arguments))}")
        return value
    if is_dataclass(hint):
        return read_record(typing.cast(type, hint), value, place)
    return _scalar(hint, value, place)


def _scalar(hint: type, value: object, place: str) -> object:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if hint is float and is_number:
        return float(typing.cast(float, value))
    if hint is int and is_number and float(typing.cast(float, value)).is_integer():
        return int(typing.cast(float, value))
    if hint in (bool, str) and isinstance(value, hint):
        return value
    raise DescriptionError(f"{place} must be {_TYPE_WORDS[hint]}, not {_word(value)}")


_TYPE_WORDS = {float: "a number", int: "a whole number", bool: "true or false", str: "a text"}


def _hints(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in fields(cls) if field.init}


def _at(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key


def _word(value: object) -> str:
    return repr(value) if isinstance(value, str | int | float | bool | None) else type(value).__name__
