"""Adapters, their versions, the versions' files, and aliases: shape and constraints."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, CheckConstraint, ForeignKey, ForeignKeyConstraint, Index, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from lorikeet_platform.db.tables.metadata import Count, Id, Micros, Size, Table, one_of

VERSION_STATES = ("validating", "ready", "rejected", "failed_internal")
FILE_NAMES = ("adapter_config.json", "adapter_model.safetensors")


class Adapter(Table):
    __tablename__ = "adapters"
    __table_args__ = (
        UniqueConstraint("tenant_id", "name"),
        CheckConstraint("next_version >= 1", name="next_version"),
    )

    tenant_id: Mapped[Id] = mapped_column(ForeignKey("tenants.id"), primary_key=True)
    id: Mapped[Id] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(64))
    description: Mapped[str | None] = mapped_column(String(1000))
    base_model: Mapped[str] = mapped_column(String(128))
    next_version: Mapped[Count] = mapped_column(default=1)
    created_at: Mapped[Micros]


class AdapterVersion(Table):
    __tablename__ = "adapter_versions"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "adapter_id"], ["adapters.tenant_id", "adapters.id"]),
        UniqueConstraint("tenant_id", "adapter_id", "number"),
        # Target of the aliases' key: an alias cannot point at another adapter's version.
        UniqueConstraint("tenant_id", "adapter_id", "id"),
        Index("ix_adapter_versions_digest", "tenant_id", "digest"),
        one_of("state", VERSION_STATES),
        CheckConstraint("state <> 'ready' OR (digest IS NOT NULL AND ready_at IS NOT NULL)", name="ready_has_content"),
        CheckConstraint("state <> 'rejected' OR reject_code IS NOT NULL", name="rejected_has_code"),
        CheckConstraint("number >= 1", name="number"),
    )

    tenant_id: Mapped[Id] = mapped_column(primary_key=True)
    id: Mapped[Id] = mapped_column(primary_key=True)
    adapter_id: Mapped[Id]
    number: Mapped[Count]
    state: Mapped[str] = mapped_column(String(16), default="validating")
    state_rev: Mapped[Count] = mapped_column(default=0, doc="counts transitions; every transition compares it")
    live_when_ready: Mapped[bool] = mapped_column(default=False, doc="the sealing request asked to move `live`")
    description: Mapped[str | None] = mapped_column(String(1000))
    digest: Mapped[str | None] = mapped_column(String(64), doc="SHA-256 of the normalised file, hex")
    rank: Mapped[Count | None]
    bytes: Mapped[Size] = mapped_column(doc="of the files as uploaded")
    serving_bytes: Mapped[Size | None]
    tensor_count: Mapped[Count | None]
    target_modules: Mapped[list[str]] = mapped_column(JSON, default=list)
    config: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True), doc="normalised PEFT configuration")
    reject_code: Mapped[str | None] = mapped_column(String(64))
    reject_detail: Mapped[str | None] = mapped_column(String(2048))
    warnings: Mapped[list[str]] = mapped_column(JSON, default=list)
    created_by: Mapped[Id] = mapped_column(doc="id of the key that sealed it")
    created_at: Mapped[Micros]
    ready_at: Mapped[Micros | None]


class VersionFile(Table):
    __tablename__ = "version_files"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "version_id"], ["adapter_versions.tenant_id", "adapter_versions.id"]),
        ForeignKeyConstraint(["tenant_id", "upload_id"], ["uploads.tenant_id", "uploads.id"]),
        one_of("filename", FILE_NAMES),
    )

    tenant_id: Mapped[Id] = mapped_column(primary_key=True)
    version_id: Mapped[Id] = mapped_column(primary_key=True)
    filename: Mapped[str] = mapped_column(String(64), primary_key=True)
    sha256: Mapped[str] = mapped_column(String(64))
    bytes: Mapped[Size]
    upload_id: Mapped[Id]


class Alias(Table):
    __tablename__ = "aliases"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "adapter_id"], ["adapters.tenant_id", "adapters.id"]),
        ForeignKeyConstraint(
            ["tenant_id", "adapter_id", "version_id"],
            ["adapter_versions.tenant_id", "adapter_versions.adapter_id", "adapter_versions.id"],
        ),
    )

    tenant_id: Mapped[Id] = mapped_column(primary_key=True)
    adapter_id: Mapped[Id] = mapped_column(primary_key=True)
    alias: Mapped[str] = mapped_column(String(64), primary_key=True)
    version_id: Mapped[Id]
    revision: Mapped[Count] = mapped_column(default=1)
    updated_at: Mapped[Micros]
