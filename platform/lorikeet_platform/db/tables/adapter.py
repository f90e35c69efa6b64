"""Adapters, their versions, the versions' files, and aliases: shape and constraints."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    JSON,
    CheckConstraint,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    String,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from lorikeet_platform.db.tables.metadata import Count, Id, Micros, Size, Table, TenantOwned, one_of

VERSION_STATES = ("validating", "ready", "rejected", "failed_internal", "retired", "quarantined", "purged")
ADAPTER_STATUSES = ("active", "deleted")
STICKINESS = ("none", "user")
_ACTIVE = text("status = 'active'")


class Adapter(TenantOwned, Table):
    __tablename__ = "adapters"
    __table_args__ = (
        # A deleted adapter's name is free again.
        Index(
            "uq_adapters_active_name", "tenant_id", "name", unique=True, sqlite_where=_ACTIVE, postgresql_where=_ACTIVE
        ),
        CheckConstraint("next_version >= 1", name="next_version"),
        one_of("status", ADAPTER_STATUSES),
        CheckConstraint("status <> 'deleted' OR deleted_at IS NOT NULL", name="deleted_at"),
    )

    tenant_id: Mapped[Id] = mapped_column(ForeignKey("tenants.id"), primary_key=True)
    id: Mapped[Id] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(64))
    description: Mapped[str | None] = mapped_column(String(1000))
    base_model: Mapped[str] = mapped_column(String(128))
    next_version: Mapped[Count] = mapped_column(default=1)
    status: Mapped[str] = mapped_column(String(16), default="active", server_default=text("'active'"))
    created_at: Mapped[Micros]
    deleted_at: Mapped[Micros | None]


class AdapterVersion(TenantOwned, Table):
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
    alias_when_ready: Mapped[str | None] = mapped_column(
        String(64), doc="alias that the sealing request asked to move; none = no more than a first `live`"
    )
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
    certificate: Mapped[dict[str, Any] | None] = mapped_column(
        JSON(none_as_null=True), doc="`lorikeet_adapters.certificate.Certificate` as a record; none before version 0003"
    )
    created_by: Mapped[Id] = mapped_column(doc="id of the key that sealed it, or 'administrator'")
    created_at: Mapped[Micros]
    ready_at: Mapped[Micros | None]
    retired_at: Mapped[Micros | None] = mapped_column(doc="since when it is retired or quarantined")
    retired_by: Mapped[str | None] = mapped_column(
        String(64), doc="who retired or quarantined it: id of a key, 'administrator' or 'system'"
    )
    retire_reason: Mapped[str | None] = mapped_column(String(500))
    purge_after: Mapped[Micros | None] = mapped_column(doc="when the sweeper may purge it; none = not by itself")


class VersionFile(TenantOwned, Table):
    __tablename__ = "version_files"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "version_id"], ["adapter_versions.tenant_id", "adapter_versions.id"]),
        ForeignKeyConstraint(["tenant_id", "upload_id"], ["uploads.tenant_id", "uploads.id"]),
    )

    tenant_id: Mapped[Id] = mapped_column(primary_key=True)
    version_id: Mapped[Id] = mapped_column(primary_key=True)
    filename: Mapped[str] = mapped_column(String(64), primary_key=True)
    sha256: Mapped[str] = mapped_column(String(64))
    bytes: Mapped[Size]
    upload_id: Mapped[Id]


class Alias(TenantOwned, Table):
    """A name that points at one version, or at several by weight; where it points lies in its targets."""

    __tablename__ = "aliases"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "adapter_id"], ["adapters.tenant_id", "adapters.id"]),
        one_of("sticky", STICKINESS),
        CheckConstraint("revision >= 1", name="revision"),
    )

    tenant_id: Mapped[Id] = mapped_column(primary_key=True)
    adapter_id: Mapped[Id] = mapped_column(primary_key=True)
    alias: Mapped[str] = mapped_column(String(64), primary_key=True)
    revision: Mapped[Count] = mapped_column(default=1, doc="counts changes; the next one compares it")
    sticky: Mapped[str] = mapped_column(String(8), default="none", server_default=text("'none'"))
    guard: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True), doc="when to roll back by itself")
    updated_by: Mapped[str] = mapped_column(String(64), default="system", server_default=text("'system'"))
    updated_at: Mapped[Micros]


class AliasTarget(TenantOwned, Table):
    """One version behind an alias, with its share of the requests in percent; an alias's shares add up to 100."""

    __tablename__ = "alias_targets"
    __table_args__ = (
        ForeignKeyConstraint(
            ["tenant_id", "adapter_id", "alias"],
            ["aliases.tenant_id", "aliases.adapter_id", "aliases.alias"],
            ondelete="CASCADE",
        ),
        ForeignKeyConstraint(
            ["tenant_id", "adapter_id", "version_id"],
            ["adapter_versions.tenant_id", "adapter_versions.adapter_id", "adapter_versions.id"],
        ),
        CheckConstraint("weight >= 1 AND weight <= 100", name="weight"),
    )

    tenant_id: Mapped[Id] = mapped_column(primary_key=True)
    adapter_id: Mapped[Id] = mapped_column(primary_key=True)
    alias: Mapped[str] = mapped_column(String(64), primary_key=True)
    version_id: Mapped[Id] = mapped_column(primary_key=True)
    weight: Mapped[Count]


class AliasChange(TenantOwned, Table):
    """Every revision of every alias, append-only; it outlives the alias."""

    __tablename__ = "alias_history"
    __table_args__ = (ForeignKeyConstraint(["tenant_id", "adapter_id"], ["adapters.tenant_id", "adapters.id"]),)

    tenant_id: Mapped[Id] = mapped_column(primary_key=True)
    adapter_id: Mapped[Id] = mapped_column(primary_key=True)
    alias: Mapped[str] = mapped_column(String(64), primary_key=True)
    revision: Mapped[Count] = mapped_column(primary_key=True, autoincrement=False)
    targets: Mapped[list[dict[str, Any]]] = mapped_column(
        JSON, doc="[{version_id, number, weight}]; empty = the alias was removed"
    )
    sticky: Mapped[str] = mapped_column(String(8))
    guard: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    actor: Mapped[str] = mapped_column(String(64), doc="id of a key, 'administrator' or 'system'")
    reason: Mapped[str | None] = mapped_column(String(500))
    previous: Mapped[Count | None] = mapped_column(
        doc="revision that a plain rollback leads to: the one before, or what was before the one whose place it takes"
    )
    at: Mapped[Micros]
