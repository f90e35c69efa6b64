"""Whose records are to settle: a gateway's own while it lives, and anybody's when it is gone or forgot them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from sqlalchemy import ColumnElement, and_, exists, select

from lorikeet_platform.clock import HOUR, SECOND
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import Gateway, UsageRecord

# Many beats: a gateway that is cut off from the database for a while comes back to it, and knows best what it sent.
OWNERLESS_AFTER_US: Final = 120 * SECOND
LONGER_THAN_ANY_US: Final = HOUR  # a request that its living gateway still has open then was forgotten by it


def has_owner(now: int) -> ColumnElement[bool]:
    """Of a record: its gateway was seen not long ago, and would have settled it by now."""
    is_seen = exists().where(Gateway.id == UsageRecord.gateway_id, Gateway.seen_at > now - OWNERLESS_AFTER_US)
    return and_(is_seen, UsageRecord.admitted_at >= now - LONGER_THAN_ANY_US)


def owned(db: Database, request_ids: Collection[str], now: int) -> set[str]:
    """Those of these whose record is open and has an owner."""
    if not request_ids:
        return set()
    statement = select(UsageRecord.request_id).where(
        UsageRecord.request_id.in_(request_ids), UsageRecord.state == "open", has_owner(now)
    )
    with db.platform.read() as work:
        return set(work.scalars(statement))
