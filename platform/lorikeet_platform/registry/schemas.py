"""Adapters, versions and aliases as the API shows them and takes them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from lorikeet_platform.clock import unix_seconds
from lorikeet_platform.db.tables import AdapterVersion, AliasChange
from lorikeet_platform.registry.catalogue import AdapterEntry, AliasEntry
from lorikeet_platform.registry.names import NAME_PATTERN
from lorikeet_platform.web.listing import Listing

VersionState = Literal["validating", "ready", "rejected", "failed_internal", "retired", "quarantined", "purged"]
Sticky = Literal["none", "user"]

MAX_TARGETS = 5
HIGHEST_NUMBER = 2**31 - 1  # what the column holds


class Certificate(BaseModel):
    """`lorikeet_adapters.certificate.Certificate`, which says what each figure is."""

    config_digest: str
    tensor_digest: str
    base_model: str
    base_model_digest: str
    modules: dict[str, int]
    ranks: dict[str, int]
    serving_bytes: int
    effect: float
    oracle: Literal["peft", "reference_ops"]
    max_logit_difference: float | None
    logit_scale: float | None
    greedy_agreement: float | None
    neighbour_max_logit_difference: float
    neighbours_unchanged: bool
    served_alike: bool | None
    n_probes: int
    n_tokens: int
    warnings: list[str]
    validator: str
    made_at: int


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
    config: dict[str, Any] | None
    reject_code: str | None
    reject_detail: str | None
    warnings: list[str]
    certificate: Certificate | None
    created_by: str
    created_at: int
    ready_at: int | None
    retired_at: int | None
    retired_by: str | None
    retire_reason: str | None
    purge_after: int | None

    @classmethod
    def of(cls, adapter: str, version: AdapterVersion) -> Version:
        plain = ("id", "number", "state", "description", "digest", "rank", "bytes", "serving_bytes", "target_modules")
        verdict = ("config", "reject_code", "reject_detail", "warnings", "created_by", "retired_by", "retire_reason")
        times = ("created_at", "ready_at", "retired_at", "purge_after")
        certificate = version.certificate
        if certificate is not None:
            certificate = certificate | {"made_at": unix_seconds(certificate["made_at"])}
        return cls.model_validate(
            {name: getattr(version, name) for name in plain + verdict}
            | {name: _seconds(getattr(version, name)) for name in times}
            | {"adapter": adapter, "certificate": certificate}
        )


class AliasTarget(BaseModel):
    """One version of the adapter, with its share of the requests in percent."""

    model_config = ConfigDict(extra="forbid")

    version: int = Field(ge=1, le=HIGHEST_NUMBER, strict=True)
    weight: int = Field(default=100, ge=1, le=100, strict=True)


class Guard(BaseModel):
    """When an alias goes back to its previous revision by itself.

    Compared are the target with the smallest share and the one with the largest, over requests since the alias was
    last changed.
    """

    model_config = ConfigDict(extra="forbid")

    max_error_rate: float | None = Field(default=None, gt=0, le=1, description="share of requests that failed")
    max_ttft_ratio: float | None = Field(
        default=None, gt=1, le=100, description="95th percentile of the time to the first token over the other's"
    )
    min_requests: int = Field(default=200, ge=20, le=1_000_000, description="before it is judged")


class Alias(BaseModel):
    alias: str
    revision: int
    targets: list[AliasTarget]
    sticky: Sticky
    guard: Guard | None
    updated_by: str
    updated_at: int

    @classmethod
    def of(cls, entry: AliasEntry) -> Alias:
        row = entry.alias
        return cls(
            alias=row.alias,
            revision=row.revision,
            targets=[AliasTarget(version=number, weight=weight) for number, weight in entry.targets],
            sticky=row.sticky,  # type: ignore[arg-type]
            guard=None if row.guard is None else Guard.model_validate(row.guard),
            updated_by=row.updated_by,
            updated_at=unix_seconds(row.updated_at),
        )


class AliasList(Listing[Alias]):
    pass


class AliasSet(BaseModel):
    """Where an alias shall point; the weights add up to 100."""

    model_config = ConfigDict(extra="forbid")

    targets: list[AliasTarget] = Field(min_length=1, max_length=MAX_TARGETS)
    sticky: Sticky = Field(default="none", description="user: whoever sends the same `user` gets the same version")
    guard: Guard | None = None
    reason: str | None = Field(default=None, max_length=500)


class AliasRollback(BaseModel):
    model_config = ConfigDict(extra="forbid")

    to_revision: int | None = Field(
        default=None,
        ge=1,
        le=HIGHEST_NUMBER,
        strict=True,
        description="when absent the one before; what a rollback left is passed over",
    )
    reason: str | None = Field(default=None, max_length=500)


class AliasRevision(BaseModel):
    """One entry of an alias's history; without targets: it was removed then."""

    revision: int
    targets: list[AliasTarget]
    sticky: Sticky
    guard: Guard | None
    actor: str
    reason: str | None
    at: int

    @classmethod
    def of(cls, change: AliasChange) -> AliasRevision:
        return cls(
            revision=change.revision,
            targets=[AliasTarget(version=item["number"], weight=item["weight"]) for item in change.targets],
            sticky=change.sticky,  # type: ignore[arg-type]
            guard=None if change.guard is None else Guard.model_validate(change.guard),
            actor=change.actor,
            reason=change.reason,
            at=unix_seconds(change.at),
        )


class AliasHistory(Listing[AliasRevision]):
    pass


class Adapter(BaseModel):
    """An adapter with its versions, newest first, and its aliases by name."""

    id: str
    name: str
    description: str | None
    created_at: int
    aliases: list[Alias]
    versions: list[Version]

    @classmethod
    def of(cls, entry: AdapterEntry) -> Adapter:
        return cls(
            id=entry.adapter.id,
            name=entry.adapter.name,
            description=entry.adapter.description,
            created_at=unix_seconds(entry.adapter.created_at),
            aliases=[Alias.of(alias) for alias in entry.aliases],
            versions=[Version.of(entry.adapter.name, version) for version in entry.versions],
        )


class AdapterList(Listing[Adapter]):
    pass


class VersionList(Listing[Version]):
    pass


class VersionFile(BaseModel):
    """One file of a version as it was uploaded."""

    filename: str
    bytes: int
    sha256: str


class VersionFileList(Listing[VersionFile]):
    pass


class VersionCreate(BaseModel):
    """`files` maps every file's name to the id of its complete upload."""

    model_config = ConfigDict(extra="forbid")

    files: dict[str, str] = Field(min_length=2, max_length=70)
    alias: str | None = Field(default=None, pattern=NAME_PATTERN, description="move it here when the version is ready")
    description: str | None = Field(default=None, max_length=1000)


class Quarantine(BaseModel):
    """Why a version is stopped at once."""

    model_config = ConfigDict(extra="forbid")

    reason: str | None = Field(default=None, max_length=500)


class Reason(BaseModel):
    """Why a version is taken out of service."""

    model_config = ConfigDict(extra="forbid")

    reason: str | None = Field(default=None, max_length=500)
    force: bool = Field(
        default=False, strict=True, description="end what runs on it within seconds, instead of waiting for it"
    )


def _seconds(at_us: int | None) -> int | None:
    return None if at_us is None else unix_seconds(at_us)
