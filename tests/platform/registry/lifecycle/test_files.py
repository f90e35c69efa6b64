"""A version's files come back as they were uploaded, or the answer breaks off; the version serves from its image."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import BinaryIO

import pytest
from sqlalchemy import update

from lorikeet_adapters.store.blob import BlobMissing
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.tables import AdapterVersion
from lorikeet_platform.registry.files import READ_BYTES, file_key
from tests.support.platform_parts import CONFIG, WEIGHTS, Tenant, Uploader
from tests.support.registry_port import Port, refusal

FILES = "/adapters/pirate/versions/1/files"
CONTENT = {CONFIG: b'{"r": 4}', WEIGHTS: bytes(range(256)) * (READ_BYTES // 100)}


@pytest.fixture(autouse=True)
def _kept(context: PlatformContext, harbour: Tenant, uploader: Uploader, tmp_path: Path) -> None:
    """Version 1 as its verdict leaves it: ready, its files in the store."""
    uploader.seal(CONTENT[CONFIG], CONTENT[WEIGHTS])
    for content in CONTENT.values():
        path = tmp_path / "file"
        path.write_bytes(content)
        context.store.put_file(file_key(harbour.id, hashlib.sha256(content).hexdigest()), path)
    with context.db.platform.unit_of_work() as work:
        work.execute(update(AdapterVersion).values(state="ready", digest="d" * 64, ready_at=1))


def blob_of(context: PlatformContext, tenant: Tenant, filename: str) -> Path:
    key = file_key(tenant.id, hashlib.sha256(CONTENT[filename]).hexdigest())
    return context.settings.blob_dir / key


def test_files_are_listed_and_come_back_byte_for_byte(port: Port) -> None:
    listed = port.get(FILES)["data"]
    assert [(file["filename"], file["bytes"]) for file in listed] == [
        (name, len(CONTENT[name])) for name in sorted(CONTENT)
    ]
    for file in listed:
        response = port.call("GET", f"{FILES}/{file['filename']}")
        assert (response.status_code, response.content) == (200, CONTENT[file["filename"]])
        assert response.headers["x-lorikeet-sha256"] == file["sha256"] == hashlib.sha256(response.content).hexdigest()
        assert response.headers["content-length"] == str(file["bytes"])
        assert response.headers["content-type"] == "application/octet-stream"


def test_a_file_that_a_version_does_not_have_is_not_found(port: Port) -> None:
    for name in ("adapter_model.bin", "README.md", f"{CONFIG}.", "..%2f..%2florikeet.db", CONFIG.upper()):
        assert port.call("GET", f"{FILES}/{name}").status_code == 404


@pytest.mark.parametrize(("state", "is_kept"), [("retired", True), ("quarantined", True), ("purged", False)])
def test_files_are_kept_as_long_as_the_version_can_come_back(
    port: Port, context: PlatformContext, state: str, is_kept: bool
) -> None:
    with context.db.platform.unit_of_work() as work:
        work.execute(update(AdapterVersion).values(state=state))
    response = port.call("GET", f"{FILES}/{CONFIG}")
    assert response.status_code == (200 if is_kept else 404)
    assert len(port.get(FILES)["data"]) == 2


@pytest.mark.parametrize("damage", ["flipped", "cut", "grown"])
def test_n_41_a_damaged_file_never_arrives_whole_and_its_version_stays_in_service(
    port: Port, context: PlatformContext, harbour: Tenant, damage: str
) -> None:
    blob, content = blob_of(context, harbour, WEIGHTS), CONTENT[WEIGHTS]
    blob.chmod(0o600)
    blob.write_bytes({"flipped": b"\xff" + content[1:], "cut": content[:-1], "grown": content + b"!"}[damage])
    response = port.call("GET", f"{FILES}/{WEIGHTS}")
    assert int(response.headers["content-length"]) == len(content)
    assert len(response.content) < len(content)
    assert port.state(1) == "ready"
    assert port.call("GET", f"{FILES}/{CONFIG}").status_code == 200


def test_n_41_a_file_that_is_missing_or_has_become_a_link_is_an_integrity_error(
    port: Port, context: PlatformContext, harbour: Tenant, tmp_path: Path
) -> None:
    blob = blob_of(context, harbour, CONFIG)
    blob.unlink()
    blob.symlink_to(tmp_path / "lorikeet.db")
    response = port.call("GET", f"{FILES}/{CONFIG}")
    assert refusal(response) == (503, "integrity_error", None)
    assert response.headers["x-should-retry"] == "false"
    assert port.state(1) == "ready"


def test_a_download_that_loses_the_race_with_a_purge_is_not_found(
    port: Port, context: PlatformContext, harbour: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    def purged_meanwhile(key: str) -> BinaryIO:
        with context.db.platform.unit_of_work() as work:
            work.execute(update(AdapterVersion).values(state="purged"))
        raise BlobMissing(key)

    monkeypatch.setattr(context.store, "open", purged_meanwhile)
    assert refusal(port.call("GET", f"{FILES}/{CONFIG}")) == (404, "not_found", None)


def test_the_files_of_a_version_being_validated_are_listed_but_not_given_out(port: Port, uploader: Uploader) -> None:
    uploader.seal(b"{}", b"other")
    assert len(port.get("/adapters/pirate/versions/2/files")["data"]) == 2
    assert refusal(port.call("GET", f"/adapters/pirate/versions/2/files/{CONFIG}")) == (404, "not_found", None)
