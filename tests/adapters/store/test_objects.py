"""What only an S3 service can get wrong: its address, its refusals, its silence, remnants in the bucket."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import obstore
import pytest
from obstore.store import S3Store

from lorikeet_adapters.store import objects
from lorikeet_adapters.store.blob import BlobDamaged, BlobError, BlobUnavailable
from lorikeet_adapters.store.local import LocalBlobStore
from lorikeet_adapters.store.objects import ObjectBlobStore
from lorikeet_adapters.store.opening import StoreAddress, open_store
from tests.support.blobs import keys, put
from tests.support.s3_service import CREDENTIALS, S3Service

LARGE = 17 << 20


def bucket_of(store: ObjectBlobStore) -> S3Store:
    """The client below, with which a test does what the store never does."""
    return store._store


def test_two_prefixes_of_a_bucket_do_not_see_each_other(s3: S3Service) -> None:
    address = s3.new_bucket()
    whole, one, other = (open_store(replace(address, url=address.url + path)) for path in ("", "/one", "/other/deep"))
    put(one, "k", b"1")
    put(other, "k", b"2")
    assert (one.read("k"), other.read("k")) == (b"1", b"2")
    assert keys(one) == keys(other) == ["k"]
    assert keys(whole) == ["one/k", "other/deep/k"]


def test_a_directory_is_opened_as_one(tmp_path_factory: pytest.TempPathFactory) -> None:
    store = open_store(StoreAddress(str(tmp_path_factory.mktemp("blobs"))))
    assert isinstance(store, LocalBlobStore)


def test_a_staged_object_is_no_blob_and_goes_when_it_is_old(bucket: ObjectBlobStore) -> None:
    put(bucket, "k", b"1")
    bucket_of(bucket).put(".staging/0123", b"half")
    now_us = time.time_ns() // 1_000
    assert keys(bucket) == ["k"]
    assert bucket.remove_remnants(now_us - 60_000_000) == 0
    assert bucket.remove_remnants(now_us + 60_000_000) == 1
    assert [meta["path"] for page in bucket_of(bucket).list() for meta in page] == ["k"]


def test_a_copy_that_fails_leaves_nothing(bucket: ObjectBlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise obstore.exceptions.GenericError("broken")

    monkeypatch.setattr(S3Store, "copy", fail)
    with pytest.raises(BlobUnavailable):
        put(bucket, "k", bytes(LARGE))
    assert [meta["path"] for page in bucket_of(bucket).list() for meta in page] == []


def test_a_large_blob_that_is_there_is_not_sent_again(bucket: ObjectBlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    put(bucket, "k", bytes(LARGE))

    def fail(*_arguments: object, **_options: object) -> None:
        raise AssertionError

    monkeypatch.setattr(S3Store, "put", fail)
    put(bucket, "k", bytes(LARGE))


def test_a_blob_replaced_while_it_is_read_is_damage(bucket: ObjectBlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "READ_BYTES", 1000)
    put(bucket, "k", bytes(5000))
    with bucket.open("k") as file:
        assert file.read(500) == bytes(500)
        bucket_of(bucket).put("k", b"x" * 5000, mode="overwrite")
        with pytest.raises(BlobDamaged):
            file.read()


def test_neither_key_nor_answer_is_in_an_error(s3: S3Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_N_RETRIES", 0)
    address = s3.new_bucket()
    stores = [
        open_store(replace(address, url="s3://no-such-bucket")),
        open_store(replace(address, endpoint="http://127.0.0.1:9")),  # nobody listens there
        open_store(replace(address, allow_http=False)),
    ]
    for store in stores:
        with pytest.raises(BlobError) as failure:
            put(store, "k", b"1")
        assert failure.value.__cause__ is None
        text = str(failure.value)
        assert not [secret for secret in CREDENTIALS.values() if secret in text]
        assert "http" not in text
        assert len(text) < 200


@pytest.mark.parametrize(
    ("address", "by_host_name"),
    [
        (StoreAddress("s3://bucket/p", region="eu-west-1"), True),
        (StoreAddress("s3://bucket.with.dots"), False),  # no certificate of AWS covers that host name
        (StoreAddress("s3://bucket", endpoint="https://minio.local:9000"), False),
    ],
)
def test_a_bucket_is_in_the_host_name_at_aws_and_in_the_path_elsewhere(
    address: StoreAddress, by_host_name: bool
) -> None:
    store = open_store(address)
    assert isinstance(store, ObjectBlobStore)
    config = bucket_of(store).config
    assert (str(config["virtual_hosted_style_request"]) == "true") is by_host_name
    assert config.get("region", "") == address.region
    assert config.get("endpoint", "") == address.endpoint


def test_an_endpoint_of_the_environment_is_addressed_by_path_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://minio.local:9000")
    store = open_store(StoreAddress("s3://bucket"))
    assert isinstance(store, ObjectBlobStore)
    assert str(bucket_of(store).config["virtual_hosted_style_request"]) == "false"


def test_a_key_that_is_taken_and_free_again_is_tried_again(
    bucket: ObjectBlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "_PAUSE_S", 0.0)
    put_object, n_conflicts = S3Store.put, 0

    def contended(self: S3Store, *arguments: Any, **options: Any) -> Any:
        nonlocal n_conflicts
        if n_conflicts < n_wanted:
            n_conflicts += 1
            raise obstore.exceptions.AlreadyExistsError("taken")
        return put_object(self, *arguments, **options)

    monkeypatch.setattr(S3Store, "put", contended)
    n_wanted = 2
    put(bucket, "k", b"1")
    assert (bucket.read("k"), n_conflicts) == (b"1", 2)
    n_wanted, n_conflicts = 99, 0
    with pytest.raises(BlobUnavailable):
        put(bucket, "other", b"1")
