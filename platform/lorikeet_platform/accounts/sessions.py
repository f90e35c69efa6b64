"""Sessions of the dashboard: a random cookie, stored hashed; idle 30 minutes, twelve hours in all.

The CSRF token is derived from the cookie, so there is nothing to store and a page can ask for it again.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass

from sqlalchemy import update
from sqlalchemy.orm import Session as Work

from lorikeet_platform.clock import HOUR, MINUTE
from lorikeet_platform.db.tables import Session

IDLE_US = 30 * MINUTE
ABSOLUTE_US = 12 * HOUR
TOUCH_EVERY_US = 1 * MINUTE  # a page that polls must not write a row each time


@dataclass(frozen=True, slots=True)
class SignedIn:
    role: str
    id_hash: bytes
    csrf_token: str


def start_session(work: Work, now: int) -> tuple[str, SignedIn]:
    """A new session of the owner, and the cookie's value."""
    cookie = secrets.token_urlsafe(32)
    session = Session(
        id_hash=_hash(cookie),
        role="owner",
        created_at=now,
        last_seen_at=now,
        idle_expires_at=now + IDLE_US,
        absolute_expires_at=now + ABSOLUTE_US,
    )
    work.add(session)
    return cookie, SignedIn(session.role, session.id_hash, csrf_token(cookie))


def find_session(work: Work, cookie: str, now: int) -> SignedIn | None:
    session = work.get(Session, _hash(cookie))
    if session is None or session.revoked_at is not None:
        return None
    if min(session.idle_expires_at, session.absolute_expires_at) <= now:
        return None
    return SignedIn(session.role, session.id_hash, csrf_token(cookie))


def needs_touch(work: Work, id_hash: bytes, now: int) -> bool:
    session = work.get(Session, id_hash)
    return session is not None and session.last_seen_at + TOUCH_EVERY_US <= now


def touch_session(work: Work, id_hash: bytes, now: int) -> None:
    """The idle time starts again."""
    _update(work, id_hash, last_seen_at=now, idle_expires_at=now + IDLE_US)


def end_session(work: Work, id_hash: bytes, now: int) -> bool:
    """Whether there was one to be ended."""
    return _update(work, id_hash, revoked_at=now)


def csrf_token(cookie: str) -> str:
    mac = hmac.new(cookie.encode(), b"lorikeet csrf", hashlib.sha256).digest()
    return base64.urlsafe_b64encode(mac).decode().rstrip("=")


def _update(work: Work, id_hash: bytes, **values: int) -> bool:
    """Whether the session was there, and had not ended."""
    mine = update(Session).where(Session.id_hash == id_hash, Session.revoked_at.is_(None)).values(**values)
    changed = work.scalar(mine.returning(Session.id_hash), execution_options={"synchronize_session": False})
    return changed is not None


def _hash(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode()).digest()
