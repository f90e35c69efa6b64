"""Tenants as the API takes and shows them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from lorikeet_platform.clock import unix_seconds
from lorikeet_platform.limits.standard import STANDARD_PLAN
from lorikeet_platform.overview.memory import TenantMemory
from lorikeet_platform.tenants import service
from lorikeet_platform.tenants.shown_names import DisplayName
from lorikeet_platform.web.listing import Listing

Weight = Annotated[
    float,
    Field(
        gt=0,
        le=service.MAX_WEIGHT,
        allow_inf_nan=False,
        strict=True,
        description="share of the engine under load, relative to other tenants",
    ),
]
PlanId = Annotated[str, Field(min_length=1, max_length=40, description="what the tenant may do: a plan's id")]
KeysMakeKeys = Annotated[bool, Field(strict=True, description="whether API keys may have the scope keys:write")]


class TenantCreate(BaseModel):
    model_config = ConfigDict(extra="forbid")

    slug: str = Field(pattern=service.SLUG_PATTERN, description="3 to 40 of a-z 0-9 -, never changed later")
    display_name: DisplayName | None = None
    weight: Weight = 1.0
    plan: PlanId = STANDARD_PLAN
    keys_make_keys: KeysMakeKeys = False


class TenantPatch(BaseModel):
    """What is left out stays."""

    model_config = ConfigDict(extra="forbid")

    # Left out is not null: the defaults below are never looked at.
    display_name: DisplayName = ""
    weight: Weight = 1.0
    plan: PlanId = ""
    keys_make_keys: KeysMakeKeys = False

    def change(self) -> service.TenantChange:
        said = self.model_fields_set
        return service.TenantChange(
            display_name=self.display_name if "display_name" in said else None,
            weight=self.weight if "weight" in said else None,
            plan=self.plan if "plan" in said else None,
            keys_make_keys=self.keys_make_keys if "keys_make_keys" in said else None,
        )


class TenantSuspend(BaseModel):
    model_config = ConfigDict(extra="forbid")

    reason: str | None = Field(default=None, max_length=500, description="kept in the audit events")


class Tenant(BaseModel):
    id: str
    slug: str
    display_name: str
    status: Literal["active", "suspended"]
    plan: str
    weight: float
    keys_make_keys: bool
    created_at: int
    suspended_at: int | None
    adapters: int
    keys: int

    @classmethod
    def of(cls, summary: service.TenantSummary) -> Tenant:
        return cls.model_validate(_shown(summary))


class Memory(BaseModel):
    """What the tenant holds of the engine's memory, by the engine's own ledgers."""

    adapter_bytes: int = Field(description="of adapters that are resident")
    kv_bytes: int = Field(description="of running requests, and of what is kept of prefixes")


class TenantDetail(Tenant):
    memory: Memory | None = Field(description="null while no engine answers")

    @classmethod
    def with_memory(cls, summary: service.TenantSummary, memory: TenantMemory | None) -> TenantDetail:
        shown = None if memory is None else Memory(adapter_bytes=memory.adapter_bytes, kv_bytes=memory.kv_bytes)
        return cls.model_validate({**_shown(summary), "memory": shown})


class TenantList(Listing[Tenant]):
    pass


def _shown(summary: service.TenantSummary) -> dict[str, object]:
    tenant = summary.tenant
    return {
        "id": tenant.id,
        "slug": tenant.slug,
        "display_name": tenant.display_name,
        "status": tenant.status,
        "plan": tenant.plan_id,
        "weight": tenant.weight,
        "keys_make_keys": tenant.keys_make_keys,
        "created_at": unix_seconds(tenant.created_at),
        "suspended_at": None if tenant.suspended_at is None else unix_seconds(tenant.suspended_at),
        "adapters": summary.n_adapters,
        "keys": summary.n_keys,
    }
