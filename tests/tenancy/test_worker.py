"""The parts together: an adapter that a worker made ready is served by every gateway, metered, and rolled up."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from sqlalchemy import func, select

from lorikeet_platform.db.tables import AdapterVersion, UsageRecord, UsageRollup
from tests.support.engine_process import letter_of
from tests.support.platform_parts import CONFIG, SLICE, TUS, WEIGHTS, encode_metadata
from tests.support.served_model import ServedModel
from tests.support.stack import Stack, wait_until
from tests.support.stack_place import Place, on_stack
from tests.support.tiny_models import save_adapter

pytestmark = pytest.mark.slow

CERTIFIED_WITHIN_S = 240.0
ROLLED_UP_WITHIN_S = 90.0


def push(place: Place, key: str, folder: Path, name: str) -> None:
    with place.client(key) as client:
        uploads = {}
        for filename in (CONFIG, WEIGHTS):
            content = (folder / filename).read_bytes()
            told = {"adapter": name, "filename": filename, "sha256": hashlib.sha256(content).hexdigest()}
            headers = {**TUS, "upload-length": str(len(content)), "upload-metadata": encode_metadata(told)}
            location = client.post("/v1/uploads", headers=headers).headers["location"]
            client.patch(location, headers={**TUS, **SLICE, "upload-offset": "0"}, content=content).raise_for_status()
            uploads[filename] = location.rpartition("/")[2]
        client.post(f"/v1/adapters/{name}/versions", json={"files": uploads}).raise_for_status()


def test_an_adapter_goes_from_a_push_through_the_worker_to_the_bill(
    stack: Stack, computed_model: ServedModel, tmp_path: Path
) -> None:
    folder = save_adapter(computed_model.folder, tmp_path / "adapter", r=2, target_modules=["q_proj", "v_proj"])
    with on_stack(stack) as place:
        tenant = place.tenant()
        place.engine.script(tenant.id, tokens=0)
        push(place, tenant.secret, folder, "harbour")
        mine = select(AdapterVersion).where(AdapterVersion.tenant_id == tenant.id)

        def version() -> AdapterVersion:
            with place.db.platform.read() as work:
                return work.scalars(mine).one()

        wait_until(lambda: version().state not in ("validating", "assembling"), CERTIFIED_WITHIN_S)
        assert version().state == "ready", version().reject_detail
        digest = version().digest
        for gateway in range(len(place.apis)):
            answer = place.chat(tenant.secret, gateway=gateway, model="harbour", max_tokens=3)
            assert answer.json()["choices"][0]["message"]["content"] == letter_of(digest) * 3
        check_the_bill(place, tenant.id, version().id, len(place.apis))


def check_the_bill(place: Place, tenant_id: str, version_id: str, n_requests: int) -> None:
    """Every request is settled with its version, and the worker's own round adds them up."""
    mine = (UsageRollup.tenant_id == tenant_id, UsageRollup.granularity == "hour")

    def rolled_up() -> int:
        with place.db.platform.read() as work:
            return work.scalar(select(func.sum(UsageRollup.requests)).where(*mine)) or 0

    wait_until(lambda: rolled_up() == n_requests, ROLLED_UP_WITHIN_S)
    with place.db.platform.read() as work:
        records = work.scalars(select(UsageRecord).where(UsageRecord.tenant_id == tenant_id)).all()
        rollup = work.scalars(select(UsageRollup).where(*mine)).one()
    assert {(record.state, record.outcome, record.version_id) for record in records} == {("settled", "ok", version_id)}
    assert rollup.version_id == version_id
    assert rollup.completion_tokens == 3 * n_requests
    assert rollup.prompt_tokens == len("hello") * n_requests
