"""Bytes that are being deleted right now: shape and constraints."""

from __future__ import annotations

from sqlalchemy import ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from lorikeet_platform.db.tables.metadata import Id, Micros, Table, TenantOwned

MAX_KEY = 200


class BlobDeletion(TenantOwned, Table):
    """Somebody deletes this blob of a tenant's; until that is over, nobody relies on it or stores it anew.

    Each deletion has a row of its own: of two at once, the first to end says nothing of the other.
    """

    __tablename__ = "blob_deletions"
    __table_args__ = (Index("ix_blob_deletions_over_at", "over_at"),)

    tenant_id: Mapped[Id] = mapped_column(ForeignKey("tenants.id"), primary_key=True)
    key: Mapped[str] = mapped_column(String(MAX_KEY), primary_key=True)
    id: Mapped[Id] = mapped_column(primary_key=True)
    over_at: Mapped[Micros] = mapped_column(doc="when the store has heard of it for certain, whatever became of us")
