"""Lists as OpenAI's clients expect them."""

from __future__ import annotations

from typing import Generic, Literal, TypeVar

from pydantic import BaseModel

Item = TypeVar("Item")


class Listing(BaseModel, Generic[Item]):
    """Everything at once; pages come with the first list that can grow long."""

    object: Literal["list"] = "list"
    data: list[Item]
