"""Adapters and versions as the API shows them."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from lorikeet_platform.clock import unix_seconds
from lorikeet_platform.db.tables import AdapterVersion
from lorikeet_platform.registry.catalogue import AdapterEntry
from lorikeet_platform.web.listing import Listing

VersionState = Literal["validating", "ready", "rejected", "failed_internal"]


class Version(BaseModel):
    """One immutable content of an adapter; `adapter` is the adapter's name."""

    id: str
    adapter: str
    number: int
    state: VersionState
    description: str | None
    digest: str | None
    rank: int | None
    bytes: int | None
    serving_bytes: int | None
    target_modules: list[str]
    reject_code: str | None
    reject_detail: str | None
    warnings: list[str]
    created_at: int
    ready_at: int | None

    @classmethod
    def of(cls, adapter: str, version: AdapterVersion) -> Version:
        plain = ("id", "number", "state", "description", "digest", "rank", "bytes", "serving_bytes", "target_modules")
        verdict = ("reject_code", "reject_detail", "warnings")
        return cls.model_validate(
            {name: getattr(version, name) for name in plain + verdict}
            | {
                "adapter": adapter,
                "created_at": unix_seconds(version.created_at),
                "ready_at": None if version.ready_at is None else unix_seconds(version.ready_at),
            }
        )


class Adapter(BaseModel):
    """An adapter with its versions, newest first; `aliases` maps an alias to a version's number."""

    id: str
    name: str
    description: str | None
    created_at: int
    aliases: dict[str, int]
    versions: list[Version]

    @classmethod
    def of(cls, entry: AdapterEntry) -> Adapter:
        return cls(
            id=entry.adapter.id,
            name=entry.adapter.name,
            description=entry.adapter.description,
            created_at=unix_seconds(entry.adapter.created_at),
            aliases=entry.aliases,
            versions=[Version.of(entry.adapter.name, version) for version in entry.versions],
        )


class AdapterList(Listing[Adapter]):
    pass


class VersionList(Listing[Version]):
    pass


class SealedFiles(BaseModel):
    """The uploads that make up a version, by file name."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    config: str = Field(alias="adapter_config.json", min_length=1, max_length=64)
    weights: str = Field(alias="adapter_model.safetensors", min_length=1, max_length=64)


class VersionCreate(BaseModel):
    model_config = ConfigDict(extra="forbid")

    files: SealedFiles
    alias: Literal["live"] | None = None
    description: str | None = Field(default=None, max_length=1000)
