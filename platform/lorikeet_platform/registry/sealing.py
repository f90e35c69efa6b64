"""From complete uploads to a version that is being validated: adapter, version, files and job in one transaction.

Sealing again is harmless: the same uploads, or other uploads of the two files of a ready version, lead to the version
that exists. While a version is being validated, nobody knows whether its bytes are those of the declared digests, so
other uploads do not share its verdict.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from lorikeet_platform.auth.principal import Principal
from lorikeet_platform.db.tables import Adapter, AdapterVersion, Upload, VersionFile
from lorikeet_platform.errors import PlatformError, quoted
from lorikeet_platform.ids import new_id
from lorikeet_platform.jobs.queue import enqueue
from lorikeet_platform.registry.aliases import point_live_at
from lorikeet_platform.registry.names import check_new_name

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class SealRequest:
    adapter: str
    uploads: dict[str, str]  # file name → upload id
    move_live: bool
    description: str | None


@dataclass(frozen=True, slots=True)
class Sealed:
    """`job_id` is None when the version existed; `spare_uploads` then hold bytes that nobody needs."""

    version: AdapterVersion
    job_id: str | None
    spare_uploads: tuple[str, ...] = ()


def seal(work: Session, principal: Principal, request: SealRequest, *, base_model: str, now: int) -> Sealed:
    """The version made of the uploads.

    Raises:
        PlatformError: invalid_value, not_found, upload_incomplete, upload_sealed.
    """
    check_new_name(request.adapter, base_model)
    uploads = {name: _upload(work, principal.tenant_id, name, request) for name in (CONFIG, WEIGHTS)}
    adapter = _adapter_for_update(work, principal.tenant_id, request.adapter, base_model, now)
    existing = _version_of_uploads(work, adapter, uploads) or _version_with_files(work, adapter, uploads)
    if existing is not None:
        return _existing(work, existing, uploads, request, now)
    for upload in uploads.values():
        _check_sealable(upload, now)
    version = _new_version(work, adapter, uploads, request, principal.key_id, now)
    job = enqueue(work, tenant_id=principal.tenant_id, kind="validate", version_id=version.id, now=now)
    work.flush()
    return Sealed(version, job.id)


def _upload(work: Session, tenant_id: str, filename: str, request: SealRequest) -> Upload:
    """The tenant's upload of `filename`; another tenant's is missing like one that never was."""
    param = f"files.{filename}"
    upload = work.get(Upload, (tenant_id, request.uploads[filename]), with_for_update=True)
    if upload is None or upload.state == "terminated":
        raise PlatformError("not_found", f"There is no upload {quoted(request.uploads[filename])}.", param)
    if upload.filename != filename:
        raise PlatformError("invalid_value", f"That upload is of the file {upload.filename}.", param)
    if upload.adapter_name != request.adapter:
        raise PlatformError("invalid_value", f"That upload is for the adapter {quoted(upload.adapter_name)}.", param)
    if upload.received != upload.length:
        raise PlatformError("upload_incomplete", f"{upload.received} of {upload.length} bytes have arrived.", param)
    return upload


def _check_sealable(upload: Upload, now: int) -> None:
    param = f"files.{upload.filename}"
    if upload.state != "open":
        raise PlatformError("upload_sealed", param=param)
    if upload.expires_at <= now:
        raise PlatformError("not_found", "The upload has expired.", param)


def _adapter_for_update(work: Session, tenant_id: str, name: str, base_model: str, now: int) -> Adapter:
    """The adapter, created if it is missing, locked so that two seals get two numbers."""
    mine = select(Adapter).where(Adapter.tenant_id == tenant_id, Adapter.name == name).with_for_update()
    adapter = work.scalars(mine).one_or_none()
    if adapter is None:
        try:
            with work.begin_nested():
                work.add(
                    Adapter(tenant_id=tenant_id, id=new_id("adp"), name=name, base_model=base_model, created_at=now)
                )
        except IntegrityError:
            pass  # another gateway was first
        adapter = work.scalars(mine).one()
    if adapter.base_model != base_model:
        raise PlatformError(
            "state_conflict", f"The adapter {quoted(name)} belongs to the base model {quoted(adapter.base_model)}."
        )
    return adapter


def _version_of_uploads(work: Session, adapter: Adapter, uploads: dict[str, Upload]) -> AdapterVersion | None:
    """The version that these very uploads were sealed into: the answer to a request that is sent again."""
    files = [
        select(VersionFile.version_id).where(
            VersionFile.tenant_id == adapter.tenant_id, VersionFile.upload_id == upload.id
        )
        for upload in uploads.values()
    ]
    mine = select(AdapterVersion).where(
        AdapterVersion.tenant_id == adapter.tenant_id, AdapterVersion.adapter_id == adapter.id
    )
    sealed = mine.where(*(AdapterVersion.id.in_(version_ids) for version_ids in files))
    # Locked: its verdict may come at any moment, and what happens to `live` depends on its state.
    return work.scalars(sealed.with_for_update(), execution_options={"populate_existing": True}).one_or_none()


def _version_with_files(work: Session, adapter: Adapter, uploads: dict[str, Upload]) -> AdapterVersion | None:
    """A ready version of this adapter made of exactly these two contents."""
    config, weights = (
        select(VersionFile.version_id).where(
            VersionFile.tenant_id == adapter.tenant_id,
            VersionFile.filename == name,
            VersionFile.sha256 == uploads[name].sha256,
            VersionFile.bytes == uploads[name].length,
        )
        for name in (CONFIG, WEIGHTS)
    )
    return work.scalars(
        select(AdapterVersion)
        .where(
            AdapterVersion.tenant_id == adapter.tenant_id,
            AdapterVersion.adapter_id == adapter.id,
            AdapterVersion.id.in_(config),
            AdapterVersion.id.in_(weights),
            AdapterVersion.state == "ready",  # which never changes any more
        )
        .order_by(AdapterVersion.number.desc())
        .limit(1)
    ).one_or_none()


def _existing(
    work: Session, version: AdapterVersion, uploads: dict[str, Upload], request: SealRequest, now: int
) -> Sealed:
    """No new number; a request to move `live` holds all the same."""
    if request.move_live:
        if version.state == "ready":
            point_live_at(work, version, now=now)
        else:
            version.live_when_ready = True
    spare = tuple(upload.id for upload in uploads.values() if upload.state == "open")
    for upload in uploads.values():
        if upload.id in spare:
            upload.state = "terminated"
    work.flush()
    return Sealed(version, None, spare)


def _new_version(
    work: Session, adapter: Adapter, uploads: dict[str, Upload], request: SealRequest, key_id: str, now: int
) -> AdapterVersion:
    version = AdapterVersion(
        tenant_id=adapter.tenant_id,
        id=new_id("ver"),
        adapter_id=adapter.id,
        number=adapter.next_version,
        state="validating",
        state_rev=0,
        live_when_ready=request.move_live,
        description=request.description,
        bytes=sum(upload.length for upload in uploads.values()),
        target_modules=[],
        warnings=[],
        created_by=key_id,
        created_at=now,
    )
    adapter.next_version += 1
    if adapter.description is None:
        adapter.description = request.description
    work.add(version)
    work.flush()
    for upload in uploads.values():
        upload.state = "sealed"
        work.add(
            VersionFile(
                tenant_id=adapter.tenant_id,
                version_id=version.id,
                filename=upload.filename,
                sha256=upload.sha256,
                bytes=upload.length,
                upload_id=upload.id,
            )
        )
    return version
