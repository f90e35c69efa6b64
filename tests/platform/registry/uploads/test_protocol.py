"""tus 1.0: create, append, resume, check, end; each upload belongs to one tenant."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lorikeet_platform.app import create_tenant_app
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.session import Database
from lorikeet_platform.registry.uploads.service import expire_uploads, purge_bytes
from tests.support.platform_parts import (
    CONFIG,
    TUS,
    FakeClock,
    Tenant,
    Uploader,
    a_tenant,
    checksum,
    encode_metadata,
    limit_tenant,
    make_context,
)
from tests.support.tables import make_tables
from tests.support.upload_answers import code, stored

CONTENT = bytes(range(256)) * 16


def test_the_server_says_what_it_speaks(api: TestClient) -> None:
    response = api.options("/v1/uploads")
    assert response.status_code == 204
    assert response.headers["tus-version"] == "1.0.0"
    assert response.headers["tus-extension"] == "creation,checksum,expiration,termination"
    assert response.headers["tus-checksum-algorithm"] == "sha1,sha256"
    assert response.headers["tus-max-size"] == str(2 << 30)


def test_an_upload_goes_on_where_it_stopped(context: PlatformContext, uploader: Uploader) -> None:
    created = uploader.create(CONTENT)
    location = created.headers["location"]
    assert created.status_code == 201
    assert "upload-expires" in created.headers
    for begin in range(0, len(CONTENT), 1000):
        assert uploader.offset(location) == begin
        response = uploader.append(location, begin, CONTENT[begin : begin + 1000])
        assert (response.status_code, response.content) == (204, b"")
    assert uploader.offset(location) == len(CONTENT)
    assert stored(context, uploader.tenant, location) == CONTENT


@pytest.mark.parametrize("algorithm", ["sha1", "sha256"])
def test_a_slice_with_its_checksum_is_kept_and_with_anothers_is_not(
    context: PlatformContext, uploader: Uploader, algorithm: str
) -> None:
    location = uploader.create(CONTENT).headers["location"]
    wrong = uploader.append(location, 0, CONTENT[:100], upload_checksum=checksum(algorithm, b"other"))
    assert code(wrong) == (460, "slice_checksum_mismatch")
    assert uploader.offset(location) == 0
    assert list(context.store.entries("uploads/")) == []
    right = uploader.append(location, 0, CONTENT[:100], upload_checksum=checksum(algorithm, CONTENT[:100]))
    assert right.status_code == 204
    assert uploader.offset(location) == 100


@pytest.mark.parametrize("header", ["md5 AAAA", "sha256", "sha256 AAAA", "sha256 %%%", ""])
def test_a_checksum_that_cannot_be_read_is_refused(uploader: Uploader, header: str) -> None:
    location = uploader.create(CONTENT).headers["location"]
    assert code(uploader.append(location, 0, CONTENT, upload_checksum=header)) == (400, "invalid_value")


@pytest.mark.parametrize("offset", [1, 99, 101, 4096])
def test_a_slice_at_another_offset_is_a_conflict_that_no_client_repeats(uploader: Uploader, offset: int) -> None:
    location = uploader.create(CONTENT).headers["location"]
    uploader.append(location, 0, CONTENT[:100])
    response = uploader.append(location, offset, b"x")
    assert code(response) == (409, "offset_conflict")
    assert response.headers["x-should-retry"] == "false"


def test_more_bytes_than_announced_are_refused_with_and_without_a_length(
    context: PlatformContext, uploader: Uploader
) -> None:
    location = uploader.create(CONTENT).headers["location"]
    assert code(uploader.append(location, 0, CONTENT + b"x")) == (413, "request_too_large")

    def chunks() -> Any:
        yield CONTENT
        yield b"x"

    assert code(uploader.append(location, 0, chunks())) == (413, "request_too_large")
    assert uploader.offset(location) == 0
    assert list(context.store.entries("uploads/")) == []


def test_an_ended_upload_is_gone_with_its_bytes(context: PlatformContext, uploader: Uploader) -> None:
    location = uploader.create(CONTENT).headers["location"]
    uploader.append(location, 0, CONTENT[:100])
    headers = {**uploader.tenant.auth, **TUS}
    assert uploader.client.delete(location, headers=headers).status_code == 204
    assert list(context.store.entries("uploads/")) == []
    assert uploader.client.head(location, headers=headers).status_code == 404
    assert code(uploader.append(location, 100, b"x")) == (404, "not_found")
    assert code(uploader.client.delete(location, headers=headers)) == (404, "not_found")


def test_an_upload_expires_unless_it_makes_progress(
    context: PlatformContext, uploader: Uploader, clock: FakeClock
) -> None:
    location = uploader.create(CONTENT).headers["location"]
    clock.advance(23 * 3600)
    uploader.append(location, 0, CONTENT[:100])
    clock.advance(23 * 3600)
    assert uploader.offset(location) == 100
    clock.advance(2 * 3600)
    assert code(uploader.append(location, 100, b"x")) == (404, "not_found")
    with context.db.platform.unit_of_work() as work:
        late = expire_uploads(work, clock.now)
    purge_bytes(context.store, late)
    assert list(context.store.entries("uploads/")) == []


def test_progress_keeps_an_upload_alive_for_three_days_at_most(uploader: Uploader, clock: FakeClock) -> None:
    location = uploader.create(CONTENT).headers["location"]
    for begin in range(3):
        clock.advance(23 * 3600)
        assert uploader.append(location, begin, CONTENT[begin : begin + 1]).status_code == 204
    clock.advance(2 * 3600)
    assert uploader.offset(location) == 3
    clock.advance(2 * 3600)
    assert code(uploader.append(location, 3, b"x")) == (404, "not_found")


def test_another_tenants_upload_is_missing_like_none(api: TestClient, uploader: Uploader, orchard: Tenant) -> None:
    location = uploader.create(CONTENT).headers["location"]
    stranger = Uploader(api, orchard)
    missing = location[:-1] + ("0" if location[-1] != "0" else "1")

    def answers(place: str) -> list[tuple[int, Any]]:
        headers = {**orchard.auth, **TUS}
        responses = [
            api.head(place, headers=headers),
            stranger.append(place, 0, b"x"),
            api.delete(place, headers=headers),
        ]
        return [
            (r.status_code, {k: v for k, v in (r.json() if r.content else {}).items() if k == "error"})
            for r in responses
        ]

    assert answers(location) == answers(missing)
    assert {status for status, _ in answers(location)} == {404}
    assert uploader.offset(location) == 0


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"filename": "adapter_model.bin"}, "Upload-Metadata.filename"),
        ({"filename": "../adapter_config.json"}, "Upload-Metadata.filename"),
        ({"sha256": "A" * 64}, "Upload-Metadata.sha256"),
        ({"sha256": "ab"}, "Upload-Metadata.sha256"),
        ({"adapter": "Pirate"}, "adapter"),
        ({"adapter": "tiny-llama"}, "adapter"),
        ({"adapter": "default"}, "adapter"),
        ({"adapter": "a..b"}, "adapter"),
        ({"adapter": "../../etc"}, "adapter"),
        ({"adapter": "pirate\n"}, "adapter"),
        ({"adapter": "p" * 65}, "adapter"),
        ({"more": "x"}, "Upload-Metadata"),
    ],
)
def test_metadata_that_is_not_exactly_right_is_refused_by_name(
    uploader: Uploader, changes: dict[str, str], param: str
) -> None:
    response = uploader.create(CONTENT, **changes)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


@pytest.mark.parametrize(
    "header", ["adapter", "adapter cGlyYXRl", "adapter cGlyYXRl,adapter cGlyYXRl", "adapter %%", "x" * 2000, ""]
)
def test_metadata_that_cannot_be_read_is_refused(uploader: Uploader, header: str) -> None:
    headers = {**uploader.tenant.auth, **TUS, "upload-length": "5", "upload-metadata": header}
    assert uploader.client.post("/v1/uploads", headers=headers).status_code == 400


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        ("0", (400, "invalid_value")),
        ("-1", (400, "invalid_value")),
        ("1e3", (400, "invalid_value")),
        (str((2 << 30) + 1), (413, "adapter_too_large")),
        ("9" * 30, (400, "invalid_value")),
    ],
)
def test_a_length_must_be_a_possible_one(uploader: Uploader, length: str, expected: tuple[int, str]) -> None:
    metadata = encode_metadata({"adapter": "pirate", "filename": CONFIG, "sha256": "0" * 64})
    headers = {**uploader.tenant.auth, **TUS, "upload-length": length, "upload-metadata": metadata}
    assert code(uploader.client.post("/v1/uploads", headers=headers)) == expected


def test_what_is_not_tus_is_refused(uploader: Uploader) -> None:
    location = uploader.create(CONTENT).headers["location"]
    assert code(uploader.append(location, 0, b"x", tus_resumable="0.2.2")) == (412, "unsupported_tus_version")
    assert code(uploader.append(location, 0, b"x", content_type="application/json")) == (415, "unsupported_media_type")
    assert code(uploader.append(location, 0, b"x", upload_offset="")) == (400, "invalid_value")
    assert uploader.offset(location) == 0


def test_open_uploads_are_bounded(tmp_path: Path, db: Database, clock: FakeClock) -> None:
    context = make_context(tmp_path, db, clock, upload_slices=2)
    tenant = a_tenant(context, "harbour")
    limit_tenant(db, tenant.id, open_uploads=2)
    with TestClient(create_tenant_app(context)) as client:
        uploader = Uploader(client, tenant)
        location = uploader.create(CONTENT).headers["location"]
        uploader.create(CONTENT)
        refused = uploader.create(CONTENT)
        assert code(refused) == (429, "too_many_uploads")
        assert refused.headers["retry-after"] == "5"
        assert [uploader.append(location, n, b"x").status_code for n in range(3)] == [204, 204, 400]


class UploadOffsets(RuleBasedStateMachine):
    """Whatever a client does, the offset is the number of bytes stored, and they are the file's first bytes."""

    @initialize(length=st.integers(1, 60))
    def begin(self, length: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        folder = Path(self.folder.name)
        database = Database(f"sqlite:///{folder / 'lorikeet.db'}")
        make_tables(database)
        self.context = make_context(folder, database, FakeClock())
        self.uploader = Uploader(TestClient(create_tenant_app(self.context)), a_tenant(self.context, "harbour"))
        self.content = hashlib.sha512(bytes([length])).digest()[:length]
        self.location = self.uploader.create(self.content).headers["location"]
        self.expected = 0

    @rule(n_bytes=st.integers(0, 20), checks=st.sampled_from(["none", "right", "wrong"]))
    def append_next(self, n_bytes: int, checks: str) -> None:
        piece = self.content[self.expected : self.expected + n_bytes]
        headers = (
            {} if checks == "none" else {"upload_checksum": checksum("sha256", piece + b"!" * (checks == "wrong"))}
        )
        response = self.uploader.append(self.location, self.expected, piece, **headers)
        if checks == "wrong":
            assert response.status_code == 460
        else:
            assert response.status_code == 204
            self.expected += len(piece)

    @rule(offset=st.integers(0, 80), n_bytes=st.integers(1, 5))
    def append_elsewhere(self, offset: int, n_bytes: int) -> None:
        if offset != self.expected:
            assert self.uploader.append(self.location, offset, b"z" * n_bytes).status_code == 409

    @rule()
    def append_too_much(self) -> None:
        too_much = self.content[self.expected :] + b"z"
        assert self.uploader.append(self.location, self.expected, too_much).status_code == 413

    @invariant()
    def the_store_holds_the_beginning_of_the_file(self) -> None:
        assert self.uploader.offset(self.location) == self.expected
        assert stored(self.context, self.uploader.tenant, self.location) == self.content[: self.expected]

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.context.db.close()
            self.folder.cleanup()


TestUploadOffsets = UploadOffsets.TestCase
TestUploadOffsets.settings = settings(
    max_examples=8, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
)
