"""Keys as the API takes and shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from lorikeet_platform.api_keys.minting import UNSAID, Wanted
from lorikeet_platform.api_keys.revoking import Revoked
from lorikeet_platform.api_keys.service import LONGEST_OVERLAP_HOURS
from lorikeet_platform.auth.addresses import parse_network
from lorikeet_platform.auth.scopes import Scope
from lorikeet_platform.clock import SECOND, unix_seconds
from lorikeet_platform.db.tables import ApiKey
from lorikeet_platform.limits.schemas import Figures
from lorikeet_platform.limits.service import Changes
from lorikeet_platform.tenants.shown_names import KeyName
from lorikeet_platform.web.listing import Listing

LATEST_S = 253_402_300_799  # the end of the year 9999
MAX_ADAPTERS, MAX_NETWORKS = 100, 50


def _network(text: str) -> str:
    try:
        return str(parse_network(text))
    except ValueError:
        raise ValueError("not an address or a network such as 192.0.2.0/24") from None


Scopes = Annotated[list[Scope], Field(min_length=1, max_length=50)]
# None of these may be empty: "none" is written as null, and means that nothing is limited.
Adapters = Annotated[list[Annotated[str, Field(max_length=64)]], Field(min_length=1, max_length=MAX_ADAPTERS)]
Networks = Annotated[
    list[Annotated[str, Field(max_length=64), AfterValidator(_network)]], Field(min_length=1, max_length=MAX_NETWORKS)
]
UnixSeconds = Annotated[int, Field(ge=0, le=LATEST_S, strict=True)]

WithMade = Annotated[bool, Field(strict=True, description="revoke the keys that were made with it, too")]


class _KeyFields(BaseModel):
    """What can be said of a key; what is left out stays, or is as the key's that makes it."""

    model_config = ConfigDict(extra="forbid")

    name: KeyName = ""
    scopes: Scopes = Field(default=[], description="left out of a new key: all that its maker has, but keys:…")
    allowed_adapters: Adapters | None = Field(
        default=None, description="names: it may use these and not the base model; null = everything"
    )
    ip_allowlist: Networks | None = Field(default=None, description="networks to be used from; null = anywhere")
    expires_at: UnixSeconds | None = Field(default=None, description="seconds since 1970; null = never")

    def wanted(self) -> Wanted:
        said = self.model_fields_set
        expires_at = None if self.expires_at is None else self.expires_at * SECOND
        return Wanted(
            name=self.name if "name" in said else UNSAID,
            scopes=self.scopes if "scopes" in said else UNSAID,
            allowed_adapters=self.allowed_adapters if "allowed_adapters" in said else UNSAID,
            ip_allowlist=self.ip_allowlist if "ip_allowlist" in said else UNSAID,
            expires_at=expires_at if "expires_at" in said else UNSAID,
        )


class KeyCreate(_KeyFields):
    name: KeyName
    limits: dict[str, Figures] = Field(default={}, description="limits of its own, by dimension")

    @property
    def changes(self) -> Changes:
        return {dimension: figures.pair for dimension, figures in self.limits.items()}


class KeyPatch(_KeyFields):
    pass


class KeyRotate(BaseModel):
    model_config = ConfigDict(extra="forbid")

    overlap_hours: int = Field(
        default=24, ge=0, le=LONGEST_OVERLAP_HOURS, strict=True, description="how long the old key works beside it"
    )


class KeyRevoke(BaseModel):
    model_config = ConfigDict(extra="forbid")

    reason: str | None = Field(default=None, max_length=500)
    with_made: WithMade = False


class LeakedKey(BaseModel):
    model_config = ConfigDict(extra="forbid")

    key: str = Field(max_length=200, description="the whole key, as it was found")
    with_made: WithMade = False


class Key(BaseModel):
    """A key without its secret; `hint` is the secret's last four characters.

    `subject_id` is the first key of the lineage that rotation keeps: limits and budgets are of it.
    """

    id: str
    name: str
    hint: str
    public_id: str
    status: Literal["active", "revoked"]
    scopes: list[Scope]
    allowed_adapters: list[str] | None = Field(description="names of those that still exist; null = everything")
    ip_allowlist: list[str] | None
    subject_id: str
    rotated_from: str | None
    replaced_at: int | None = Field(description="since when it has a successor")
    created_by: str
    created_at: int
    expires_at: int | None
    revoked_at: int | None
    revoke_reason: str | None
    last_used_at: int | None = Field(description="to the minute")
    last_used_network: str | None

    @classmethod
    def of(cls, key: ApiKey, adapter_names: Mapping[str, str]) -> Key:
        return cls.model_validate(_shown(key, adapter_names))


class KeyWithSecret(Key):
    """The only answer that ever holds the secret."""

    secret: str

    @classmethod
    def with_secret(cls, key: ApiKey, adapter_names: Mapping[str, str], secret: str) -> KeyWithSecret:
        return cls.model_validate({**_shown(key, adapter_names), "secret": secret})


class RevokedKey(Key):
    made_keys: list[Key] = Field(
        description="that worked until then and were made with it, with those it was rotated from, or with these"
    )

    @classmethod
    def with_made(cls, revoked: Revoked, adapter_names: Mapping[str, str]) -> RevokedKey:
        made = [_shown(key, adapter_names) for key in revoked.made]
        return cls.model_validate({**_shown(revoked.key, adapter_names), "made_keys": made})


class KeyList(Listing[Key]):
    pass


def _shown(key: ApiKey, adapter_names: Mapping[str, str]) -> dict[str, object]:
    times = ("created_at", "expires_at", "revoked_at", "last_used_at", "replaced_at")
    shown = {name: getattr(key, name) for name in Key.model_fields}
    allowed = key.allowed_adapters
    names = None if allowed is None else sorted(adapter_names[id_] for id_ in allowed if id_ in adapter_names)
    return {
        **shown,
        "allowed_adapters": names,
        **{name: None if shown[name] is None else unix_seconds(shown[name]) for name in times},
    }
