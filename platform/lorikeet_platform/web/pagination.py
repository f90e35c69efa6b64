"""Pages of long lists: a cursor says where the next page begins.

A cursor is a list's own figures with a MAC over them, the tenant and the route: callers cannot make one, move one, or
use another tenant's. Its key follows from the pepper, so every gateway of an installation reads every cursor. Knows no
table; a list keeps its order and says what a position is.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Generic, Literal, TypeVar

from fastapi import Query
from pydantic import BaseModel

from lorikeet_platform.auth.pepper import Pepper
from lorikeet_platform.errors import PlatformError

MAX_PAGE: Final = 100
DEFAULT_PAGE: Final = 20
MAX_CURSOR: Final = 1024  # characters
MAC_BYTES: Final = 16
ALL_TENANTS: Final = "*"  # whose list it is where an administrator sees everybody's
_PURPOSE: Final = "cursors of lists"

Item = TypeVar("Item")
Position = Sequence[str | int]

PageLimit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="entries of a page")]
After = Annotated[str | None, Query(max_length=MAX_CURSOR, description="`next` of the page before")]


class Page(BaseModel, Generic[Item]):
    """A part of a list; `next` goes into `after` for the part that follows, and is null with the last."""

    object: Literal["list"] = "list"
    data: list[Item]
    has_more: bool
    next: str | None


@dataclass(frozen=True, slots=True)
class Cursors:
    """Cursors of one list.

    Attributes:
        tenant_id: whose list it is, or `ALL_TENANTS`.
        route: what list it is; the same on both ports where they show the same.
    """

    pepper: Pepper
    tenant_id: str
    route: str

    def write(self, position: Position) -> str:
        version = self.pepper.current
        payload = json.dumps([version, *position], separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(self._mac(payload, version) + payload).rstrip(b"=").decode()

    def read(self, cursor: str | None) -> list[str | int] | None:
        """The position after which the page begins; None without a cursor: at the beginning.

        Raises:
            PlatformError: invalid_value for what was not written for this very list.
        """
        if cursor is None:
            return None
        try:
            raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise _unknown_cursor() from None
        mac, payload = raw[:MAC_BYTES], raw[MAC_BYTES:]
        # The version is read before it is believed: it only says which pepper's MAC the payload must carry.
        version = next((v for v in self.pepper.secrets if payload.startswith(b"[%d," % v)), self.pepper.current)
        if not hmac.compare_digest(mac, self._mac(payload, version)):
            raise _unknown_cursor()
        position: list[str | int] = json.loads(payload)[1:]
        return position

    def _mac(self, payload: bytes, version: int) -> bytes:
        key = self.pepper.mac(_PURPOSE, version)
        place = json.dumps([self.tenant_id, self.route]).encode()  # one spelling for each pair, ends with a bracket
        return hmac.new(key, place + payload, hashlib.sha256).digest()[:MAC_BYTES]


def cut(rows: Sequence[Item], limit: int) -> tuple[list[Item], bool]:
    """Of `limit` + 1 rows at most those of the page, and whether more follow."""
    return list(rows[:limit]), len(rows) > limit


def _unknown_cursor() -> PlatformError:
    return PlatformError("invalid_value", "after is not a cursor of this list.", "after")
