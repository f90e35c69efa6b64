"""What a crash leaves behind: temporary files that nobody works on, unfinished blobs, slices whose deletion was lost.

Every deletion here may race with the owner's own; whoever is first wins, and neither minds.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import structlog
from sqlalchemy import select

from lorikeet_adapters.store.blob import BlobStore
from lorikeet_platform.clock import HOUR, Clock, now_us
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import Job
from lorikeet_platform.registry.uploads.service import list_stored, purge_bytes, those_over

log = structlog.get_logger(__name__)

VALIDATION_PREFIX, SLICE_PREFIX = "validate-", "slice-"
JOB_END = "-"  # of the job's id, in the name of its folder
# Longer than a crashed worker's lease; a slice may trickle in for as long as its upload lives by default.
LONGEST_USE_US: Mapping[str, int] = {VALIDATION_PREFIX: 1 * HOUR, SLICE_PREFIX: 24 * HOUR}
LONGEST_PUT_US = 24 * HOUR


def validation_prefix(job_id: str) -> str:
    """How the names of a job's folders begin, so that nobody removes them while somebody works on it."""
    return f"{VALIDATION_PREFIX}{job_id}{JOB_END}"


class LeftoverCleaner:
    """A chore: what the store holds and nobody needs any more."""

    def __init__(self, *, db: Database, store: BlobStore, clock: Clock = now_us) -> None:
        self._db, self._store, self._clock = db, store, clock

    def clean(self) -> Mapping[str, int]:
        n_uploads = self._purge_what_is_over()
        n_blobs = self._store.remove_remnants(self._clock() - LONGEST_PUT_US)
        if n_blobs or n_uploads:
            log.info("leftovers removed", blobs=n_blobs, uploads=n_uploads)
        return {"blobs": n_blobs, "uploads": n_uploads}

    def _purge_what_is_over(self) -> int:
        stored = list_stored(self._store)
        with self._db.platform.read() as work:
            over = those_over(work, stored)
        purge_bytes(self._store, over)
        return len(over)


class TemporaryFiles:
    """Every worker looks through its own folder, which others may not see."""

    def __init__(self, *, db: Database, folder: Path, clock: Clock = now_us) -> None:
        self._db, self._folder, self._clock = db, folder, clock

    def remove_old(self) -> int:
        """Remove what nobody can be working on; returns how many files and folders."""
        n_removed, now = 0, self._clock()
        old = []
        for prefix, longest_use_us in LONGEST_USE_US.items():
            for path in self._folder.glob(f"{prefix}*"):
                with suppress(FileNotFoundError):
                    if path.lstat().st_mtime_ns // 1_000 + longest_use_us <= now:
                        old.append(path)
        leased = self._leased_jobs(now) if old else frozenset()
        for path in old:
            if path.name.split(JOB_END)[1] in leased:
                continue  # a job may take as long as it takes; its worker extends the lease
            with suppress(FileNotFoundError):
                (shutil.rmtree if path.is_dir() and not path.is_symlink() else Path.unlink)(path)
                n_removed += 1
        if n_removed:
            log.info("temporary files removed", files=n_removed)
        return n_removed

    def _leased_jobs(self, now: int) -> frozenset[str]:
        held = select(Job.id).where(Job.state == "leased", Job.lease_expires_at > now)
        with self._db.platform.read() as work:
            return frozenset(work.scalars(held))
