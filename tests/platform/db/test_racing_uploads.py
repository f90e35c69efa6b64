"""N-43 on each database: of creations that race for the last place, exactly one gets it."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from lorikeet_platform.auth.actor import Actor
from lorikeet_platform.clock import now_us
from lorikeet_platform.db.session import Database
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.registry.uploads.protocol import UploadMetadata
from lorikeet_platform.registry.uploads.service import create_upload
from lorikeet_platform.settings import LimitSettings
from lorikeet_platform.tenants.service import create_tenant
from tests.support.platform_parts import limit_tenant

N_RACERS = 6


@pytest.fixture
def tenant_id(database: Database) -> str:
    with database.platform.unit_of_work() as work:
        tenant = create_tenant(work, slug="harbour", display_name=None, now=now_us())
    return tenant.id


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ({"open_uploads": 3}, "too_many_uploads"),
        ({"upload_inflight_bytes": 350}, "too_many_uploads"),
        ({"adapter_bytes": 350}, "adapter_quota_exceeded"),
        ({"adapters": 3}, "adapter_quota_exceeded"),
    ],
)
def test_n_43_exactly_one_of_many_gets_the_last_place(
    database: Database, tenant_id: str, limits: dict[str, int | tuple[int, int]], code: str
) -> None:
    limit_tenant(database, tenant_id, **limits)

    def create(number: int) -> str:
        metadata = UploadMetadata(f"adapter-{number}", "adapter_config.json", "0" * 64)
        try:
            with database.platform.unit_of_work() as work:
                create_upload(work, Actor(tenant_id, "key_1"), metadata, 100, limits=LimitSettings(), now=now_us())
        except PlatformError as refusal:
            return refusal.code
        return "created"

    assert [create(number) for number in (1, 2)] == ["created", "created"]
    outcomes: Counter[str] = Counter()
    start = threading.Barrier(N_RACERS)

    def race(number: int) -> None:
        start.wait()
        outcomes[create(number)] += 1

    threads = [threading.Thread(target=race, args=(number,)) for number in range(3, 3 + N_RACERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == {"created": 1, code: N_RACERS - 1}
