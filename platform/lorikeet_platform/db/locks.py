"""Rows that changes queue at, each locked in one way."""

from __future__ import annotations

from sqlalchemy.orm import Session

from lorikeet_platform.db.tables import Tenant


def lock_tenant(work: Session, tenant_id: str) -> Tenant:
    """The tenant, held until the transaction ends: of two changes at one of its bounds the second sees the first.

    Other rows may go on referring to it.
    """
    return work.get_one(Tenant, tenant_id, with_for_update={"key_share": True})
