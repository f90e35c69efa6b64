"""What an adapter may be called, and how a request's `model` is taken apart."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lorikeet_platform.errors import PlatformError, quoted

MAX_NAME = 64
NAME_PATTERN = r"^[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?$"
DEFAULT_ALIAS = "live"
RESERVED = frozenset(
    {"base", "default", "admin", "internal", "system", "platform", "lorikeet", "models", "none", "null"}
)

_NAME = re.compile(NAME_PATTERN.strip("^$"))
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")


@dataclass(frozen=True, slots=True)
class ModelReference:
    """An adapter's name with either an alias or a version number."""

    adapter: str
    alias: str | None
    number: int | None


def is_adapter_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None and ".." not in name


def check_new_name(name: str, base_model: str) -> str:
    """`name`, if an adapter may be created under it.

    Raises:
        PlatformError: invalid_value with param `adapter`.
    """
    if not is_adapter_name(name):
        raise PlatformError(
            "invalid_value",
            f"{quoted(name)} is not an adapter name: 1 to {MAX_NAME} of a-z 0-9 . _ -, a letter or digit at both ends, "
            "no two dots in a row.",
            "adapter",
        )
    if name in RESERVED or name == base_model.lower():
        raise PlatformError("invalid_value", f"The name {quoted(name)} is reserved.", "adapter")
    return name


def check_alias_name(alias: str) -> str:
    """`alias`, if an alias may be called so.

    Raises:
        PlatformError: invalid_value with param `alias`.
    """
    if not is_adapter_name(alias):
        raise PlatformError(
            "invalid_value",
            f"{quoted(alias)} is not an alias: 1 to {MAX_NAME} of a-z 0-9 . _ -, a letter or digit at both ends, "
            "no two dots in a row.",
            "alias",
        )
    return alias


def parse_model(model: str) -> ModelReference | None:
    """`name`, `name@alias` or `name:7`; None for anything else, which is then an unknown model."""
    name, at, alias = model.partition("@")
    if at:
        return ModelReference(name, alias, None) if is_adapter_name(name) and is_adapter_name(alias) else None
    name, colon, number = model.partition(":")
    if not is_adapter_name(name):
        return None
    if colon:
        return ModelReference(name, None, int(number)) if _NUMBER.fullmatch(number) else None
    return ModelReference(name, DEFAULT_ALIAS, None)
