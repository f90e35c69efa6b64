"""A value of any record of figures that says nothing: zeros, empty texts, empty lists. For whoever wants names only."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

import msgspec


def nothing(kind: Any) -> Any:
    """Of a type built from numbers, texts, collections and records of those."""
    if isinstance(kind, type) and (dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct)):
        return kind(**{name: nothing(of) for name, of in typing.get_type_hints(kind).items()})
    origin = typing.get_origin(kind) or kind
    if origin in (int, float, str, bool, list, dict, tuple):
        return origin()
    raise TypeError(f"no empty value of {kind}")
