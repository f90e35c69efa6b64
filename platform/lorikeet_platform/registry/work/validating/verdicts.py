"""How a validation ends in the database: ready with a certificate, rejected by name, or failed through our fault."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from lorikeet_adapters.certificate import Certificate
from lorikeet_adapters.errors import AdapterRejected
from lorikeet_adapters.sandbox.record import ValidatedRecord
from lorikeet_platform.auth.actor import ADMINISTRATOR, SYSTEM
from lorikeet_platform.db.tables import AdapterVersion, Upload
from lorikeet_platform.registry.aliasing.aliases import lock_adapter, point_when_ready
from lorikeet_platform.registry.audited import record_version
from lorikeet_platform.registry.versions.states import transition
from lorikeet_platform.registry.work.validating.assembling import version_files

MAX_DETAIL = 2_000


class ContentQuarantined(Exception):
    """The files are others, but they come out as an adapter that an administrator has quarantined."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A code for programs, a sentence for people."""

    code: str
    detail: str

    @classmethod
    def of(cls, error: AdapterRejected) -> Rejection:
        return cls(error.code, error.message)


def accept(
    work: Session, tenant_id: str, version_id: str, record: ValidatedRecord, certificate: Certificate, *, now: int
) -> None:
    """The version is ready, and its adapter's aliases move as the push asked. Raises ContentQuarantined."""
    version = _locked(work, tenant_id, version_id)
    check_not_quarantined(work, tenant_id, record.digest)
    _consume_uploads(work, version)
    transition(
        work,
        version,
        "ready",
        digest=record.digest,
        rank=record.rank_max,
        serving_bytes=certificate.serving_bytes,
        tensor_count=record.tensor_count,
        target_modules=list(record.target_modules),
        config=dict(record.config),
        warnings=[*certificate.warnings, *_twins(work, version, record.digest)],
        certificate=certificate.as_record(),
        ready_at=now,
    )
    record_version(work, version, "version.verdict", actor=SYSTEM, now=now)
    point_when_ready(work, version, now=now)


def reject(work: Session, tenant_id: str, version_id: str, rejection: Rejection, *, purge_after: int, now: int) -> None:
    version = _locked(work, tenant_id, version_id)
    _consume_uploads(work, version)
    transition(
        work,
        version,
        "rejected",
        reject_code=rejection.code,
        reject_detail=rejection.detail[:MAX_DETAIL],
        purge_after=purge_after,
    )
    record_version(work, version, "version.verdict", actor=SYSTEM, now=now, code=rejection.code)


def fail(work: Session, tenant_id: str, version_id: str, error: str, *, now: int) -> None:
    """Our fault, and `error` is the class of it. The uploads stay, because the version may be validated again."""
    version = _locked(work, tenant_id, version_id)
    transition(work, version, "failed_internal", reject_detail=f"our fault: {error}")
    record_version(work, version, "version.verdict", actor=SYSTEM, now=now, error=error)


def check_not_quarantined(work: Session, tenant_id: str, digest: str) -> None:
    """Raises ContentQuarantined when an administrator has quarantined a version of the tenant with this content."""
    quarantined = select(AdapterVersion.id).where(
        AdapterVersion.tenant_id == tenant_id,
        AdapterVersion.digest == digest,
        AdapterVersion.state == "quarantined",
        AdapterVersion.retired_by == ADMINISTRATOR,
    )
    if work.scalars(quarantined.limit(1)).first() is not None:
        raise ContentQuarantined(digest)


def _locked(work: Session, tenant_id: str, version_id: str) -> AdapterVersion:
    """The version, locked for its verdict.

    Locks come in the order of `sealing.seal`: uploads by file name, adapter, version. Another could end in a deadlock.
    """
    for file in version_files(work, tenant_id, version_id):
        work.get_one(Upload, (tenant_id, file.upload_id), with_for_update={"key_share": True}, populate_existing=True)
    adapter_id = work.scalars(
        select(AdapterVersion.adapter_id).where(AdapterVersion.tenant_id == tenant_id, AdapterVersion.id == version_id)
    ).one()
    lock_adapter(work, tenant_id, adapter_id)
    return work.get_one(
        AdapterVersion, (tenant_id, version_id), with_for_update={"key_share": True}, populate_existing=True
    )


def _consume_uploads(work: Session, version: AdapterVersion) -> None:
    """Their bytes are stored as files, or will never be: the slices can go."""
    for file in version_files(work, version.tenant_id, version.id):
        upload = work.get_one(Upload, (version.tenant_id, file.upload_id))
        if upload.state == "sealed":
            upload.state = "consumed"


def _twins(work: Session, version: AdapterVersion, digest: str) -> list[str]:
    """A note when other files came out as the same adapter: the versions then share one image."""
    numbers = work.scalars(
        select(AdapterVersion.number)
        .where(
            AdapterVersion.tenant_id == version.tenant_id,
            AdapterVersion.adapter_id == version.adapter_id,
            AdapterVersion.digest == digest,
            AdapterVersion.id != version.id,
            AdapterVersion.state == "ready",
        )
        .order_by(AdapterVersion.number)
    ).all()
    return [f"the same content as version {numbers[0]}"] if numbers else []
