"""What workers decide is written as the system's, outside of any request."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from lorikeet_platform.auth.actor import SYSTEM
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.tables import AdapterVersion, AuditEvent, Upload
from lorikeet_platform.jobs.queue import LeasedJob, enqueue, lease
from lorikeet_platform.registry.uploads.service import expire_uploads
from lorikeet_platform.registry.work.purging import VersionPurger
from lorikeet_platform.registry.work.validating import verdicts
from tests.support.platform_parts import Tenant, a_version

Decide = Callable[[Session, str, str], None]


def events(context: PlatformContext) -> list[AuditEvent]:
    with context.db.platform.read() as work:
        return list(work.scalars(select(AuditEvent).where(AuditEvent.actor == SYSTEM).order_by(AuditEvent.id)))


@pytest.mark.parametrize(
    ("decide", "details"),
    [
        (
            lambda work, tenant_id, version_id: verdicts.fail(work, tenant_id, version_id, "OSError", now=7),
            {"state": "failed_internal", "error": "OSError"},
        ),
        (
            lambda work, tenant_id, version_id: verdicts.reject(
                work, tenant_id, version_id, verdicts.Rejection("config_invalid", "no"), purge_after=9, now=7
            ),
            {"state": "rejected", "code": "config_invalid"},
        ),
    ],
)
def test_a_verdict_is_written(
    context: PlatformContext, harbour: Tenant, decide: Decide, details: dict[str, str]
) -> None:
    with context.db.platform.unit_of_work() as work:
        version_id = a_version(work, harbour, name="pirate", state="validating").id
    with context.db.tenant(harbour.id).unit_of_work() as work:
        decide(work, harbour.id, version_id)
    [found] = events(context)
    assert (found.action, found.subject, found.actor_kind) == ("version.verdict", "pirate:1", "system")
    assert (found.tenant_id, found.request_id, found.at) == (harbour.id, None, 7)
    assert found.details == {"version_id": version_id, **details}


def test_a_purge_is_written(context: PlatformContext, harbour: Tenant) -> None:
    with context.db.platform.unit_of_work() as work:
        version = a_version(work, harbour, name="pirate", state="retired")
        version.retired_at, version.purge_after = 1, 1
        job_id = enqueue(work, tenant_id=harbour.id, kind="purge", version_id=version.id, now=1).id
        leased = lease(work, job_id, context.clock())
    assert isinstance(leased, LeasedJob)
    VersionPurger(db=context.db, store=context.store, clock=context.clock).perform(leased)
    [found] = events(context)
    assert (found.action, found.subject, found.details["state"]) == ("version.purge", "pirate:1", "purged")
    with context.db.platform.read() as work:
        assert work.scalars(select(AdapterVersion.state)).all() == ["purged"]


def test_an_upload_whose_time_is_over_is_written(context: PlatformContext, harbour: Tenant) -> None:
    with context.db.platform.unit_of_work() as work:
        work.add(
            Upload(
                tenant_id=harbour.id,
                id="upl_1",
                adapter_name="pirate",
                filename="adapter_config.json",
                sha256="a",
                length=7,
                created_by=harbour.key_id,
                created_at=1,
                expires_at=2,
            )
        )
    with context.db.platform.unit_of_work() as work:
        expire_uploads(work, 3)
    [found] = events(context)
    assert (found.action, found.subject, found.tenant_id) == ("upload.terminate", "upl_1", harbour.id)
