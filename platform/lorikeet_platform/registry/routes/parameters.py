"""What the addresses and headers of several routes have in common."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Header, Path
from pydantic import BeforeValidator

from lorikeet_platform.errors import PlatformError
from lorikeet_platform.registry.schemas import HIGHEST_NUMBER

_NUMBER = re.compile(r"[1-9][0-9]{0,9}")


def _as_written(text: object) -> object:
    """A number has one spelling: with others, one version would have many addresses."""
    if isinstance(text, str) and not _NUMBER.fullmatch(text):
        raise ValueError("not a number")
    return text


VersionNumber = Annotated[int, Path(ge=1, le=HIGHEST_NUMBER), BeforeValidator(_as_written)]
IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        description='the revision that is to be changed, `"7"`; another one is 409 `revision_conflict`',
    ),
]
IfNoneMatch = Annotated[str | None, Header(alias="If-None-Match", description="`*`: the alias must not exist yet")]

_ETAG = re.compile(r'"([1-9][0-9]{0,8})"')


def expected_revision(if_match: str | None, if_none_match: str | None = None) -> int | None:
    """The revision that the caller knows, 0 for none at all, None when it does not say.

    Raises:
        PlatformError: invalid_value.
    """
    if if_none_match is not None:
        if if_none_match != "*" or if_match is not None:
            raise PlatformError("invalid_value", "If-None-Match can only be *, and alone.", "If-None-Match")
        return 0
    if if_match is None:
        return None
    found = _ETAG.fullmatch(if_match.strip())
    if found is None:
        raise PlatformError("invalid_value", 'If-Match must be one revision in quotes, such as "7".', "If-Match")
    return int(found[1])


def etag(revision: int) -> str:
    return f'"{revision}"'
