"""The Python tus client, which is not ours, uploads to our server and resumes there."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from tusclient.client import TusClient
from tusclient.exceptions import TusCommunicationError
from tusclient.storage.filestorage import FileStorage

from tests.support.upload_gateway import UploadGateway

pytestmark = pytest.mark.slow

MIB = 1 << 20


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "adapter_model.safetensors"
    path.write_bytes(os.urandom(3 * MIB + 17))
    return path


def uploader(gateway: UploadGateway, file: Path, **options: Any) -> Any:
    client = TusClient(f"{gateway.url}/v1/uploads", headers=dict(gateway.api.headers))
    metadata = {
        "adapter": "foreign",
        "filename": file.name,
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
    }
    return client.uploader(str(file), metadata=metadata, chunk_size=MIB, **options)


def check_stored(gateway: UploadGateway, url: str, file: Path) -> None:
    (tenant_id,) = {path.name for path in (gateway.folder / "data" / "blobs" / "uploads").iterdir()}
    content = file.read_bytes()
    expected = (hashlib.sha256(content).hexdigest(), len(content))
    assert gateway.stored_digest(tenant_id, url.rpartition("/")[2]) == expected


@pytest.mark.parametrize("checks", [True, False])
def test_it_uploads_with_and_without_checksums(gateway: UploadGateway, file: Path, checks: bool) -> None:
    sending = uploader(gateway, file, upload_checksum=checks)
    sending.upload()
    check_stored(gateway, sending.url, file)


def test_it_resumes_at_the_address_it_was_given(gateway: UploadGateway, file: Path) -> None:
    begun = uploader(gateway, file)
    begun.upload(stop_at=MIB + 5)
    resumed = uploader(gateway, file, url=begun.url)
    assert resumed.offset == MIB + 5
    resumed.upload()
    check_stored(gateway, resumed.url, file)


def test_it_resumes_from_its_own_memory_after_the_gateway_was_killed(
    gateway: UploadGateway, file: Path, tmp_path: Path
) -> None:
    memory = FileStorage(str(tmp_path / "memory"))
    begun = uploader(gateway, file, store_url=True, url_storage=memory)
    begun.upload(stop_at=2 * MIB)
    gateway.kill()
    with pytest.raises(TusCommunicationError):
        begun.upload()
    gateway.start()
    resumed = uploader(gateway, file, store_url=True, url_storage=memory)
    assert (resumed.url, resumed.offset) == (begun.url, 2 * MIB)
    resumed.upload()
    check_stored(gateway, resumed.url, file)
    memory.close()
