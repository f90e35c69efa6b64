"""Store and rows, compared both ways; the worker has it done once a day.

bytes that no version needs     deleted when two runs in a row found them and they are older than two days: what is
                                being validated is younger, and a lost upload of yesterday is nobody's hurry
a version without its image     quarantined if it serves; logged in any case
a version without a file        logged: it serves all the same, but its files cannot be given back
anything else in the store      left alone: keys of another form, and those of a tenant that this database has not

What a run found lies in the store itself, so that the next run may be another worker's; its key tells when it was.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from lorikeet_adapters.source import image_key
from lorikeet_adapters.store.blob import BlobDamaged, BlobEntry, BlobError, BlobMissing, BlobStore
from lorikeet_platform.clock import HOUR, Clock, now_us
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import AdapterVersion, Tenant, VersionFile
from lorikeet_platform.jobs.celery_app import Waker
from lorikeet_platform.registry.files import KEPT_STATES, file_key
from lorikeet_platform.registry.versions.lifecycle import quarantine_damaged
from lorikeet_platform.registry.work.references import delete_file_if_unused, delete_image_if_unused

log = structlog.get_logger(__name__)

RUNS_PREFIX: Final = "reconciliation/"
IMAGES_PREFIX: Final = "images/"
FILES_PREFIX: Final = "files/"
APART_US: Final = 12 * HOUR  # a run that is repeated soon after another, such as one that failed, says nothing new
OLD_US: Final = 48 * HOUR
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_RUN: Final = re.compile(rf"{RUNS_PREFIX}[0-9]{{20}}")


@dataclass(frozen=True, slots=True)
class Content:
    """One blob that a version may need: an image by its digest, or a file by its SHA-256."""

    tenant_id: str
    digest: str
    is_image: bool

    @property
    def key(self) -> str:
        return (image_key if self.is_image else file_key)(self.tenant_id, self.digest)

    @classmethod
    def of_key(cls, key: str) -> Content | None:
        """None for a key that is neither an image's nor a file's: whatever lies there, it is not ours."""
        match key.split("/"):
            case ["images", tenant_id, digest] if _DIGEST.fullmatch(digest):
                return cls(tenant_id, digest, is_image=True)
            case ["files", tenant_id, "sha256", _, digest] if _DIGEST.fullmatch(digest):
                content = cls(tenant_id, digest, is_image=False)
                return content if content.key == key else None
        return None


@dataclass(frozen=True, slots=True)
class Findings:
    """What one run saw.

    Attributes:
        orphans: keys that no version needs.
        missing: what versions need and the store has not.
    """

    orphans: frozenset[str]
    missing: tuple[Content, ...]


def compare(stored: Iterable[str], needed: Iterable[Content], required: Iterable[Content]) -> Findings:
    """What is stored against what any version refers to, and against what versions cannot be without."""
    keys = frozenset(stored)
    return Findings(
        orphans=keys - {content.key for content in needed},
        missing=tuple(content for content in dict.fromkeys(required) if content.key not in keys),
    )


class Reconciler:
    """A chore: one run over the whole store and all versions."""

    def __init__(
        self, *, db: Database, store: BlobStore, temporary_dir: Path, wake: Waker, clock: Clock = now_us
    ) -> None:
        self._db, self._store, self._wake = db, store, wake
        self._temporary_dir, self._clock = temporary_dir, clock

    def reconcile(self) -> Mapping[str, int]:
        now = self._clock()
        earlier = sorted(entry.key for entry in self._store.entries(RUNS_PREFIX) if _RUN.fullmatch(entry.key))
        stored = [*self._store.entries(IMAGES_PREFIX), *self._store.entries(FILES_PREFIX)]
        with self._db.platform.read() as work:  # after the listing: what was stored meanwhile is not looked at
            needed, required = _contents(work)
        findings = compare((entry.key for entry in stored), needed, required)
        # What tenants are served with comes first, and no fault in one thing keeps another from being looked at.
        for content in findings.missing:
            self._report(content)
        gone = self._delete(stored, findings.orphans & self._orphans_of(earlier, now), now)
        self._remember(findings.orphans - gone, now)
        for key in earlier:
            self._store.delete(key)
        if findings.orphans:
            log.info("bytes that no version needs", found=len(findings.orphans), deleted=len(gone))
        return {"orphans": len(findings.orphans), "deleted": len(gone), "missing": len(findings.missing)}

    def _delete(self, stored: Iterable[BlobEntry], candidates: frozenset[str], now: int) -> frozenset[str]:
        with self._db.platform.read() as work:
            tenants = frozenset(work.scalars(select(Tenant.id)))
        gone: set[str] = set()
        for entry in stored:
            content = Content.of_key(entry.key)
            is_old = entry.key in candidates and entry.modified_us + OLD_US <= now
            if not is_old or content is None or content.tenant_id not in tenants:
                continue
            try:
                if self._delete_if_unused(content):
                    gone.add(entry.key)
            except (BlobError, OSError, SQLAlchemyError) as error:
                log.warning("bytes that no version needs are not deleted", key=entry.key, error=type(error).__name__)
        return frozenset(gone)

    def _delete_if_unused(self, content: Content) -> bool:
        delete = delete_image_if_unused if content.is_image else delete_file_if_unused
        return delete(self._db, self._store, content.tenant_id, content.digest, clock=self._clock)

    def _report(self, content: Content) -> None:
        """A listing may be older than the rows, so the store is asked once more."""
        try:
            if self._store.size(content.key) is not None:
                return
            log.error("a version's bytes are missing from the store", key=content.key)
            job_ids = self._quarantine(content) if content.is_image else ()
        except (BlobError, OSError, SQLAlchemyError) as error:
            log.warning("a version's bytes cannot be looked for", key=content.key, error=type(error).__name__)
            return
        for job_id in job_ids:
            self._wake(job_id)

    def _quarantine(self, content: Content) -> tuple[str, ...]:
        with self._db.tenant(content.tenant_id).unit_of_work() as work:
            return quarantine_damaged(work, content.tenant_id, content.digest, now=self._clock())

    def _orphans_of(self, runs: list[str], now: int) -> frozenset[str]:
        """What the last run found; nothing when that was just now, or its notes are gone or unreadable."""
        if not runs or _time_of(runs[-1]) + APART_US > now:
            return frozenset()
        try:
            return frozenset(json.loads(self._store.read(runs[-1])))
        except (BlobMissing, BlobDamaged, ValueError):
            return frozenset()

    def _remember(self, orphans: frozenset[str], now: int) -> None:
        self._temporary_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=self._temporary_dir, prefix="reconciliation-") as notes:
            json.dump(sorted(orphans), notes)
            notes.flush()
            self._store.put_file(f"{RUNS_PREFIX}{now:020}", Path(notes.name))


def _time_of(key: str) -> int:
    return int(key.removeprefix(RUNS_PREFIX))


def _contents(work: Session) -> tuple[list[Content], list[Content]]:
    """What versions that are not purged refer to, and what those must have that were ready once."""
    needed: list[Content] = []
    required: list[Content] = []
    images = select(AdapterVersion.tenant_id, AdapterVersion.digest, AdapterVersion.state).where(
        AdapterVersion.state != "purged", AdapterVersion.digest.is_not(None)
    )
    files = (
        select(VersionFile.tenant_id, VersionFile.sha256, AdapterVersion.state)
        .join(
            AdapterVersion,
            (AdapterVersion.tenant_id == VersionFile.tenant_id) & (AdapterVersion.id == VersionFile.version_id),
        )
        .where(AdapterVersion.state != "purged")
    )
    for statement, is_image in ((images, True), (files, False)):
        for tenant_id, digest, state in work.execute(statement):
            content = Content(tenant_id, str(digest), is_image)
            needed.append(content)
            if state in KEPT_STATES:
                required.append(content)
    return needed, required
