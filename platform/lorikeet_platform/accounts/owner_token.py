"""The owner's one-time link: one hour, one use, stored as a hash."""

from __future__ import annotations

import hashlib
import secrets

from sqlalchemy import update
from sqlalchemy.orm import Session

from lorikeet_platform.audit.service import record
from lorikeet_platform.auth.actor import SYSTEM
from lorikeet_platform.clock import HOUR
from lorikeet_platform.db.tables import OwnerToken
from lorikeet_platform.errors import PlatformError

LIFETIME_US = HOUR


def issue_owner_token(work: Session, now: int) -> str:
    """A fresh token; tokens issued before it are void. Whoever issues it has the installation's own files at hand."""
    _void_unused(work, now)
    token = secrets.token_urlsafe(32)
    work.add(OwnerToken(token_hash=_hash(token), created_at=now, expires_at=now + LIFETIME_US))
    record(work, tenant_id=None, actor=SYSTEM, action="owner.link", subject="owner", now=now)
    return token


def redeem_owner_token(work: Session, token: str, now: int) -> None:
    """Use the token up.

    Raises:
        PlatformError: invalid_owner_token when it is unknown, used or too old.
    """
    used = work.execute(
        update(OwnerToken)
        .where(OwnerToken.token_hash == _hash(token), OwnerToken.used_at.is_(None), OwnerToken.expires_at > now)
        .values(used_at=now)
        .execution_options(synchronize_session=False)
        .returning(OwnerToken.token_hash)
    ).one_or_none()
    if used is None:
        raise PlatformError("invalid_owner_token")


def _void_unused(work: Session, now: int) -> None:
    work.execute(
        update(OwnerToken)
        .where(OwnerToken.used_at.is_(None), OwnerToken.expires_at > now)
        .values(expires_at=now)
        .execution_options(synchronize_session=False)
    )


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
