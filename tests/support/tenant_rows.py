"""One row of one tenant in every table that tenants have rows in."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from lorikeet_engine.cost_vector import COSTS
from lorikeet_platform.db.tables import (
    Adapter,
    AdapterVersion,
    Alias,
    AliasChange,
    AliasTarget,
    ApiKey,
    AuditEvent,
    BlobDeletion,
    BudgetCounter,
    DirtyBucket,
    Job,
    KeyLimit,
    Table,
    Tenant,
    TenantLimit,
    Upload,
    UploadSlice,
    UsageCost,
    UsageRecord,
    UsageRollup,
    VersionFile,
)

NO_COST = dict.fromkeys(COSTS, 0.0)


def fill_every_table(work: Session, slug: str) -> str:
    """A new tenant with a row in each of its tables; returns its id. All its ids and names end with `slug`."""
    tenant_id = f"ten_{slug}"
    for rows in (
        [Tenant(id=tenant_id, slug=slug, display_name=slug, cache_salt=bytes(32), created_at=1)],
        _key(tenant_id, slug),
        _limits_and_figures(tenant_id, slug),
        _adapter(tenant_id, slug),
        _upload(tenant_id, slug),
        _what_refers_to_versions(tenant_id, slug),
    ):
        work.add_all(rows)
        work.flush()
    work.add(
        AliasTarget(
            tenant_id=tenant_id, adapter_id=f"adp_{slug}", alias=f"live-{slug}", version_id=f"ver_{slug}", weight=100
        )
    )
    work.add(UsageCost(tenant_id=tenant_id, request_id=f"req_{slug}", **NO_COST))
    work.flush()
    return tenant_id


def _key(tenant_id: str, slug: str) -> Sequence[Table]:
    return [
        ApiKey(
            tenant_id=tenant_id,
            id=f"key_{slug}",
            public_id=slug,
            secret_mac=bytes(32),
            pepper_version=1,
            name="first",
            hint="abcd",
            scopes=["inference"],
            subject_id=f"key_{slug}",
            created_by="administrator",
            created_at=1,
        )
    ]


def _limits_and_figures(tenant_id: str, slug: str) -> Sequence[Table]:
    key_id = f"key_{slug}"
    return [
        TenantLimit(tenant_id=tenant_id, dimension="rpm", value=1, updated_by="administrator", updated_at=1),
        KeyLimit(
            tenant_id=tenant_id,
            subject_id=key_id,
            dimension="rpm",
            value=1,
            updated_by="administrator",
            updated_at=1,
        ),
        BudgetCounter(tenant_id=tenant_id, subject_id=key_id, period_start=0),
        DirtyBucket(tenant_id=tenant_id, granularity="hour", bucket_start=0),
        UsageRollup(
            tenant_id=tenant_id,
            granularity="hour",
            bucket_start=0,
            key_id=key_id,
            base_model="tiny",
            version_id="",
            adapter_id="",
            requests=1,
            errors=0,
            prompt_tokens=1,
            cached_tokens=0,
            completion_tokens=1,
            requests_without_cost=1,
            computed_at=1,
            **NO_COST,
        ),
        BlobDeletion(tenant_id=tenant_id, key="files/a", id=f"del_{slug}", over_at=1),
        AuditEvent(
            id=f"evt_{slug}",
            tenant_id=tenant_id,
            at=1,
            actor_kind="system",
            actor="system",
            action="tenant.create",
            subject=slug,
            details={},
        ),
    ]


def _adapter(tenant_id: str, slug: str) -> Sequence[Table]:
    return [Adapter(tenant_id=tenant_id, id=f"adp_{slug}", name="pirate", base_model="tiny", created_at=1)]


def _upload(tenant_id: str, slug: str) -> Sequence[Table]:
    return [
        Upload(
            tenant_id=tenant_id,
            id=f"upl_{slug}",
            adapter_name="pirate",
            filename="adapter_config.json",
            sha256="a",
            length=1,
            received=1,
            created_by=f"key_{slug}",
            created_at=1,
            expires_at=9,
        ),
        AdapterVersion(
            tenant_id=tenant_id,
            id=f"ver_{slug}",
            adapter_id=f"adp_{slug}",
            number=1,
            state="ready",
            digest="d" * 64,
            ready_at=1,
            bytes=1,
            target_modules=[],
            warnings=[],
            created_by=f"key_{slug}",
            created_at=1,
        ),
    ]


def _what_refers_to_versions(tenant_id: str, slug: str) -> Sequence[Table]:
    adapter_id, version_id, alias = f"adp_{slug}", f"ver_{slug}", f"live-{slug}"
    return [
        UploadSlice(
            tenant_id=tenant_id,
            upload_id=f"upl_{slug}",
            begin=0,
            bytes=1,
            sha256="a",
            slice_id=f"sli_{slug}",
            stored_at=1,
        ),
        VersionFile(
            tenant_id=tenant_id,
            version_id=version_id,
            filename="adapter_config.json",
            sha256="a",
            bytes=1,
            upload_id=f"upl_{slug}",
        ),
        Alias(tenant_id=tenant_id, adapter_id=adapter_id, alias=alias, updated_at=1),
        AliasChange(
            tenant_id=tenant_id,
            adapter_id=adapter_id,
            alias=alias,
            revision=1,
            targets=[],
            sticky="none",
            actor="system",
            at=1,
        ),
        Job(
            tenant_id=tenant_id,
            id=f"job_{slug}",
            kind="validate",
            version_id=version_id,
            run_after=1,
            wake_at=1,
            created_at=1,
        ),
        UsageRecord(
            tenant_id=tenant_id,
            request_id=f"req_{slug}",
            key_id=f"key_{slug}",
            subject_id=f"key_{slug}",
            route="/v1/completions",
            base_model="tiny",
            adapter_id=adapter_id,
            version_id=version_id,
            stream=False,
            period_start=0,
            admitted_at=1,
        ),
    ]
