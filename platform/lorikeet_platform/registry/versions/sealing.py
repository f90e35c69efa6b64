"""From complete uploads to a version that is being validated: adapter, version, files and job in one transaction.

Sealing again is harmless: the same uploads, or other uploads of the files of a ready version, lead to the version that
exists. While a version is being validated, nobody knows whether its bytes are those of the declared digests, so other
uploads do not share its verdict. Nor do they bring back a version that somebody retired or quarantined: that was a
decision about a number, which `restore` takes back; a push of its content becomes a new number, validated anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Select, func, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from lorikeet_adapters.errors import AdapterRejected
from lorikeet_adapters.files import is_adapter_file, weight_files
from lorikeet_platform.auth.actor import ADMINISTRATOR, Actor
from lorikeet_platform.db.tables import Adapter, AdapterVersion, Upload, VersionFile
from lorikeet_platform.errors import PlatformError, quoted
from lorikeet_platform.ids import new_id
from lorikeet_platform.jobs.queue import enqueue
from lorikeet_platform.limits.effective import EffectiveLimits
from lorikeet_platform.registry.aliasing.aliases import Change, point_wholly_at
from lorikeet_platform.registry.audited import record_upload, record_version
from lorikeet_platform.registry.names import check_alias_name, check_new_name
from lorikeet_platform.registry.reach import check_reach, check_reach_of_name
from lorikeet_platform.registry.uploads.quotas import check_room, lock_and_read_limits, too_many_adapters


@dataclass(frozen=True, slots=True, kw_only=True)
class SealRequest:
    """`files` maps file names to upload ids; `alias` shall point at the version as soon as it is ready."""

    adapter: str
    files: Mapping[str, str]
    alias: str | None
    description: str | None


@dataclass(frozen=True, slots=True)
class Sealed:
    """`job_id` is None when the version existed; `use_existing` is then to be called.

    Attributes:
        spare_uploads: hold bytes that nobody needs.
        moves_alias: the version is ready, and the alias shall point at it: as soon as the engine has it.
    """

    version: AdapterVersion
    job_id: str | None
    spare_uploads: tuple[str, ...] = ()
    moves_alias: bool = False


def seal(work: Session, actor: Actor, request: SealRequest, *, base_model: str, now: int) -> Sealed:
    """The version made of the uploads.

    Raises:
        PlatformError: invalid_value, adapter_not_allowed_for_key, not_found, upload_incomplete, upload_sealed,
            adapter_quota_exceeded, state_conflict when an administrator has quarantined this content.
    """
    check_new_name(request.adapter, base_model)
    check_reach_of_name(work, actor.tenant_id, request.adapter)
    if request.alias is not None:
        check_alias_name(request.alias)
    _check_file_set(request.files)
    uploads = {name: _upload(work, actor.tenant_id, name, request) for name in sorted(request.files)}
    limits = lock_and_read_limits(work, actor.tenant_id)
    adapter = _adapter_for_update(work, actor.tenant_id, request.adapter, base_model, limits, now)
    existing = _version_of_uploads(work, adapter, uploads) or _version_with_files(work, adapter, uploads)
    if existing is not None:
        if existing.state == "validating" and request.alias is not None:
            existing.alias_when_ready = request.alias
            record_version(work, existing, "version.update", actor=actor.name, now=now, alias=request.alias)
            work.flush()
        spare = tuple(upload.id for upload in uploads.values() if upload.state == "open")
        return Sealed(existing, None, spare, moves_alias=request.alias is not None and existing.state == "ready")
    for upload in uploads.values():
        _check_sealable(upload, now)
    _check_not_quarantined(work, actor.tenant_id, uploads)
    check_room(work, actor.tenant_id, limits, n_bytes=sum(upload.length for upload in uploads.values()))
    version = _new_version(work, adapter, uploads, request, actor.name, now)
    record_version(work, version, "version.create", actor=actor.name, now=now, alias=request.alias)
    job = enqueue(work, tenant_id=actor.tenant_id, kind="validate", version_id=version.id, now=now)
    work.flush()
    return Sealed(version, job.id)


def _check_file_set(files: Mapping[str, str]) -> None:
    """Exactly the files of one adapter; the place of each fault is named as far as it is a file's."""
    for name in sorted(files):
        if not is_adapter_file(name):
            raise PlatformError("unknown_parameter", f"{quoted(name)} is no file of an adapter.", f"files.{name}"[:100])
    try:
        weight_files(files.keys())
    except AdapterRejected as rejected:
        code = "missing_parameter" if rejected.param not in files else "invalid_value"
        raise PlatformError(code, rejected.message, f"files.{rejected.param}") from None


def _upload(work: Session, tenant_id: str, filename: str, request: SealRequest) -> Upload:
    """The tenant's upload of `filename`; another tenant's is missing like one that never was."""
    param = f"files.{filename}"
    upload = work.get(Upload, (tenant_id, request.files[filename]), with_for_update={"key_share": True})
    if upload is None or upload.state == "terminated":
        raise PlatformError("not_found", f"There is no upload {quoted(request.files[filename])}.", param)
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


def _adapter_for_update(
    work: Session, tenant_id: str, name: str, base_model: str, limits: EffectiveLimits, now: int
) -> Adapter:
    """The adapter, created if it is missing, locked so that two seals get two numbers."""
    mine = (
        select(Adapter)
        .where(Adapter.tenant_id == tenant_id, Adapter.name == name, Adapter.status == "active")
        .with_for_update(key_share=True)
    )
    adapter = work.scalars(mine).one_or_none()
    if adapter is None:
        _check_count(work, tenant_id, limits)
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


def _check_count(work: Session, tenant_id: str, limits: EffectiveLimits) -> None:
    mine = select(func.count()).where(Adapter.tenant_id == tenant_id, Adapter.status == "active")
    if (work.scalar(mine) or 0) >= limits["adapters"].value:
        raise too_many_adapters(limits["adapters"])


def _version_of_uploads(work: Session, adapter: Adapter, uploads: Mapping[str, Upload]) -> AdapterVersion | None:
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
    # Locked: its verdict may come at any moment, and what happens to the alias depends on its state.
    return work.scalars(
        sealed.with_for_update(key_share=True), execution_options={"populate_existing": True}
    ).one_or_none()


def _version_with_files(work: Session, adapter: Adapter, uploads: Mapping[str, Upload]) -> AdapterVersion | None:
    """A ready version of this adapter made of exactly these contents."""
    return work.scalars(
        _made_of(adapter.tenant_id, uploads)
        .where(AdapterVersion.adapter_id == adapter.id, AdapterVersion.state == "ready")
        .order_by(AdapterVersion.number.desc())
        .limit(1)
    ).one_or_none()


def _check_not_quarantined(work: Session, tenant_id: str, uploads: Mapping[str, Upload]) -> None:
    """An administrator's quarantine is of a content, whatever number or adapter it comes as. Damage can be healed."""
    quarantined = _made_of(tenant_id, uploads).where(
        AdapterVersion.state == "quarantined", AdapterVersion.retired_by == ADMINISTRATOR
    )
    if work.scalars(quarantined.limit(1)).first() is not None:
        raise PlatformError("state_conflict", "An administrator has quarantined a version of exactly these files.")


def _made_of(tenant_id: str, uploads: Mapping[str, Upload]) -> Select[AdapterVersion]:
    """A tenant's versions made of exactly these contents."""
    of_tenant = VersionFile.tenant_id == tenant_id
    same = [
        select(VersionFile.version_id).where(
            of_tenant,
            VersionFile.filename == name,
            VersionFile.sha256 == upload.sha256,
            VersionFile.bytes == upload.length,
        )
        for name, upload in uploads.items()
    ]
    others = select(VersionFile.version_id).where(of_tenant, VersionFile.filename.not_in(uploads))
    return select(AdapterVersion).where(
        AdapterVersion.tenant_id == tenant_id,
        *(AdapterVersion.id.in_(version_ids) for version_ids in same),
        AdapterVersion.id.not_in(others),
    )


def use_existing(work: Session, actor: Actor, sealed: Sealed, alias: str | None, now: int) -> None:
    """End the uploads that turned out to be spare, and let `alias` mean the version that exists.

    Raises:
        PlatformError: state_conflict when the version is not ready any more.
    """
    check_reach(work, sealed.version.adapter_id)  # the key may have been limited while the engine loaded
    for upload_id in sealed.spare_uploads:
        ended = work.scalars(
            update(Upload)
            .where(Upload.tenant_id == actor.tenant_id, Upload.id == upload_id, Upload.state == "open")
            .values(state="terminated")
            .returning(Upload),
            execution_options={"synchronize_session": False},
        ).one_or_none()
        if ended is not None:
            record_upload(work, ended, "upload.terminate", actor=actor.name, now=now)
    if sealed.moves_alias and alias is not None:
        point_wholly_at(work, sealed.version, alias, Change(actor=actor.name, now=now, reason="asked for by a push"))


def _new_version(
    work: Session, adapter: Adapter, uploads: Mapping[str, Upload], request: SealRequest, created_by: str, now: int
) -> AdapterVersion:
    version = AdapterVersion(
        tenant_id=adapter.tenant_id,
        id=new_id("ver"),
        adapter_id=adapter.id,
        number=adapter.next_version,
        state="validating",
        state_rev=0,
        alias_when_ready=request.alias,
        description=request.description,
        bytes=sum(upload.length for upload in uploads.values()),
        target_modules=[],
        warnings=[],
        created_by=created_by,
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
