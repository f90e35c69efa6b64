"""Uploads cut by SIGKILL of either side, shared by two machines, or expired: nothing is lost, nothing comes twice."""

from __future__ import annotations

import hashlib
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from sqlalchemy import select, update

from lorikeet_adapters.folder import LocalFile
from lorikeet_adapters.store.local import LocalBlobStore
from lorikeet_platform.cli.api import Api
from lorikeet_platform.cli.upload.tus import TusClient
from lorikeet_platform.clock import now_us
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import Adapter, AdapterVersion, Upload
from lorikeet_platform.registry.uploads.service import expire_uploads, purge_bytes, slice_key
from tests.support.upload_gateway import UploadGateway, ended_well

pytestmark = pytest.mark.slow

MIB = 1 << 20
LARGE, MEDIUM, SMALL = 200 * MIB, 40 * MIB, 2 * MIB
MakeAdapter = Callable[[int], Path]


def adapter_id(gateway: UploadGateway, name: str) -> str:
    return str(gateway.rows(lambda work: work.scalars(select(Adapter.id).filter_by(name=name)).one()))


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def cut_at(gateway: UploadGateway, folder: Path, name: str, n_bytes: int, *, machine: str = "one") -> int:
    """Push, and kill the command as soon as so many bytes have arrived; returns how many then have."""
    push = gateway.push(folder, name, machine=machine)
    wait_for(gateway, name, n_bytes, push)
    push.send_signal(signal.SIGKILL)
    push.wait()
    settle(gateway, name)
    assert push.returncode == -signal.SIGKILL, "it ended before it could be killed"
    return gateway.received(name)


def wait_for(gateway: UploadGateway, name: str, n_bytes: int, push: subprocess.Popen[bytes]) -> None:
    """Until so many bytes of the adapter have arrived, or its sender has ended."""
    gateway.wait_until(lambda: gateway.received(name) >= n_bytes or push.poll() is not None)


def settle(gateway: UploadGateway, name: str) -> None:
    """A slice that had arrived whole when its sender was killed is still being recorded."""
    before = -1
    while (now := gateway.received(name)) != before:
        before = now
        time.sleep(0.3)


def test_a_push_killed_at_five_random_points_of_200_mb_ends_with_the_right_digest(
    gateway: UploadGateway, make_adapter: MakeAdapter
) -> None:
    folder, seed = make_adapter(LARGE), random.randrange(1 << 32)
    assert size_of(folder) >= LARGE
    points = sorted(random.Random(seed).randrange(MIB, int(0.9 * LARGE)) for _ in range(5))
    before = 0
    for point in points:
        arrived = cut_at(gateway, folder, "large", point)
        assert arrived >= max(before, point), f"seed {seed}"
        before = arrived
    version = ended_well(gateway.push(folder, "large"))
    assert (version["number"], version["state"]) == (1, "validating")
    gateway.check_sealed_once(adapter_id(gateway, "large"), folder)
    uploads = gateway.rows(lambda work: work.scalars(select(Upload).filter_by(adapter_name="large")).all())
    assert len(uploads) == 2, f"every run went on with the first one's uploads; seed {seed}"


def test_two_machines_that_resume_one_upload_at_once_both_end_well_with_one_version(
    gateway: UploadGateway, make_adapter: MakeAdapter
) -> None:
    folder = make_adapter(MEDIUM)
    cut_at(gateway, folder, "shared", 4 * MIB)
    pushes = [gateway.push(folder, "shared", machine=machine) for machine in ("two", "three")]
    versions = [ended_well(push) for push in pushes]
    assert len({version["id"] for version in versions}) == 1
    gateway.check_sealed_once(adapter_id(gateway, "shared"), folder)


def test_an_expired_upload_is_begun_again_and_its_bytes_go(gateway: UploadGateway, make_adapter: MakeAdapter) -> None:
    folder = make_adapter(MEDIUM)
    cut_at(gateway, folder, "late", 4 * MIB)
    (old,) = (upload for upload in gateway.open_uploads("late") if upload["filename"] == "adapter_model.safetensors")
    database = Database(gateway.db_url)
    with database.platform.unit_of_work() as work:
        work.execute(update(Upload).filter_by(adapter_name="late").values(expires_at=now_us() - 1))
    assert gateway.open_uploads("late") == []
    ended_well(gateway.push(folder, "late"))
    gateway.check_sealed_once(adapter_id(gateway, "late"), folder)
    with database.platform.unit_of_work() as work:
        late = expire_uploads(work, now_us())
    database.close()
    store = LocalBlobStore(gateway.folder / "data" / "blobs")
    (tenant_id,) = {tenant for tenant, _ in late}
    assert list(store.entries(slice_key(tenant_id, old["id"], "")))
    purge_bytes(store, late)
    assert list(store.entries(slice_key(tenant_id, old["id"], ""))) == []
    gateway.check_sealed_once(adapter_id(gateway, "late"), folder)


def test_a_gateway_killed_in_the_middle_of_slices_loses_none_that_it_confirmed(
    gateway: UploadGateway, make_adapter: MakeAdapter
) -> None:
    folder = make_adapter(MEDIUM)
    push = gateway.push(folder, "robust")
    confirmed = 0
    for point in (5 * MIB, 20 * MIB):
        wait_for(gateway, "robust", point, push)
        assert push.poll() is None, "it ended before the gateway could be killed"
        confirmed = gateway.received("robust")
        gateway.kill()
        gateway.start()
        assert gateway.received("robust") >= confirmed
    ended_well(push)
    gateway.check_sealed_once(adapter_id(gateway, "robust"), folder)


def test_a_gateway_killed_while_it_seals_has_sealed_wholly_or_not_at_all(
    gateway: UploadGateway, make_adapter: MakeAdapter
) -> None:
    seed = random.randrange(1 << 32)
    delays = random.Random(seed)
    undisturbed = {path.name: whole(gateway, "undisturbed", path) for path in make_adapter(SMALL).iterdir()}
    began_at = time.monotonic()
    seal_and_ignore(gateway, "undisturbed", undisturbed)
    longest_s = time.monotonic() - began_at
    for trial in range(2):
        name, folder = f"sealing-{trial}", make_adapter(SMALL)
        files = {path.name: whole(gateway, name, path) for path in folder.iterdir()}
        seal = threading.Thread(target=seal_and_ignore, args=(gateway, name, files))
        seal.start()
        delay_s = delays.uniform(0, longest_s)
        seal.join(delay_s)
        gateway.kill()
        seal.join()
        n_versions = len(gateway.rows(lambda work: work.scalars(select(AdapterVersion)).all()))
        gateway.start()
        answers = [gateway.api.post(f"/v1/adapters/{name}/versions", json={"files": files}) for _ in range(2)]
        assert {answer.status_code for answer in answers} <= {200, 202}, f"seed {seed}, killed after {delay_s} s"
        assert len({answer.json()["id"] for answer in answers}) == 1
        gateway.check_sealed_once(adapter_id(gateway, name), folder)
        assert len(gateway.rows(lambda work: work.scalars(select(AdapterVersion)).all())) - n_versions in (0, 1)


def seal_and_ignore(gateway: UploadGateway, name: str, files: dict[str, str]) -> None:
    with httpx.Client(base_url=gateway.url, headers=gateway.api.headers, timeout=10) as client:
        try:
            client.post(f"/v1/adapters/{name}/versions", json={"files": files})
        except httpx.HTTPError:
            pass  # the gateway is gone


def whole(gateway: UploadGateway, name: str, path: Path) -> str:
    """Upload a file in one slice; returns the upload's id."""
    content = path.read_bytes()
    with Api(gateway.url, gateway.key) as api:
        tus = TusClient(api)
        digest = hashlib.sha256(content).hexdigest()
        upload_id = tus.create(name, LocalFile(path, path.name, len(content), digest))
        assert tus.append(upload_id, 0, content) == len(content)
    return upload_id
