"""Uploads in progress and the slices received so far: shape and constraints."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, ForeignKey, ForeignKeyConstraint, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from lorikeet_platform.db.tables.metadata import Id, Micros, Size, Table, TenantOwned, one_of

# open → sealed → consumed (its bytes became a version's files), or open → terminated
UPLOAD_STATES = ("open", "sealed", "consumed", "terminated")


class Upload(TenantOwned, Table):
    __tablename__ = "uploads"
    __table_args__ = (
        one_of("state", UPLOAD_STATES),
        CheckConstraint("received >= 0 AND received <= length", name="received"),
        CheckConstraint("state NOT IN ('sealed', 'consumed') OR received = length", name="sealed_is_complete"),
        Index("ix_uploads_state_expires_at", "state", "expires_at"),
    )

    tenant_id: Mapped[Id] = mapped_column(ForeignKey("tenants.id"), primary_key=True)
    id: Mapped[Id] = mapped_column(primary_key=True)
    adapter_name: Mapped[str] = mapped_column(String(64))
    filename: Mapped[str] = mapped_column(String(64))
    sha256: Mapped[str] = mapped_column(String(64), doc="of the whole file, as declared by the client")
    length: Mapped[Size]
    received: Mapped[Size] = mapped_column(default=0)
    state: Mapped[str] = mapped_column(String(16), default="open")
    created_by: Mapped[Id]
    created_at: Mapped[Micros]
    expires_at: Mapped[Micros]


class UploadSlice(TenantOwned, Table):
    """One store object, put by one PATCH. The key is built from the three ids."""

    __tablename__ = "upload_slices"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "upload_id"], ["uploads.tenant_id", "uploads.id"]),
        CheckConstraint("begin >= 0 AND bytes > 0", name="extent"),
    )

    tenant_id: Mapped[Id] = mapped_column(primary_key=True)
    upload_id: Mapped[Id] = mapped_column(primary_key=True)
    begin: Mapped[Size] = mapped_column(primary_key=True, autoincrement=False)
    bytes: Mapped[Size]
    sha256: Mapped[str] = mapped_column(String(64))
    slice_id: Mapped[Id]
    stored_at: Mapped[Micros]
