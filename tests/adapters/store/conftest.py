"""The same store twice: in a directory, and in a bucket of an S3 service that this run starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lorikeet_adapters.store.blob import BlobStore
from lorikeet_adapters.store.local import LocalBlobStore
from lorikeet_adapters.store.objects import ObjectBlobStore
from lorikeet_adapters.store.opening import open_store
from tests.support.s3_service import CREDENTIALS, S3Service, running_s3_service


@pytest.fixture(scope="session")
def s3_service() -> Iterator[S3Service]:
    with running_s3_service() as service:
        yield service


@pytest.fixture
def s3(s3_service: S3Service, monkeypatch: pytest.MonkeyPatch) -> S3Service:
    """With credentials in the environment."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    return s3_service


@pytest.fixture
def local(tmp_path: Path) -> LocalBlobStore:
    return LocalBlobStore(tmp_path / "blobs")


@pytest.fixture
def bucket(s3: S3Service) -> ObjectBlobStore:
    store = open_store(s3.new_bucket("/some/prefix"))
    assert isinstance(store, ObjectBlobStore)
    return store


@pytest.fixture(params=["local", "bucket"])
def store(request: pytest.FixtureRequest) -> BlobStore:
    chosen: BlobStore = request.getfixturevalue(request.param)
    return chosen
