"""Names that people give to keys, tenants and plans, and read in tables, terminals and spreadsheets."""

from __future__ import annotations

import unicodedata
from typing import Annotated

from pydantic import AfterValidator, Field

# Controls, format characters (direction, joiners), line and paragraph ends, and what is no character.
_UNSEEN = ("C", "Zl", "Zp")


def _readable(name: str) -> str:
    if not name.strip():
        raise ValueError("is blank")
    if any(unicodedata.category(character).startswith(_UNSEEN) for character in name):
        raise ValueError("has a control or format character")
    return name


KeyName = Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_readable)]
DisplayName = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_readable)]
