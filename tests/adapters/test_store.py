"""A local store keeps what it was given, once, whole, and inside its root."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest

from lorikeet_adapters.errors import AdapterImageDamaged, AdapterImageMissing
from lorikeet_adapters.source import AdapterSource, image_key
from lorikeet_adapters.store.blob import BlobConflict, BlobError, BlobKeyInvalid, BlobMissing, BlobStore
from lorikeet_adapters.store.local import LocalBlobStore

BAD_KEYS = [
    "",
    "/etc/passwd",
    "../x",
    "a/../../b",
    "a/..",
    "a//b",
    "a/",
    ".hidden",
    "a/.hidden",
    "a\\b",
    "a\0b",
    "a b",
    "a\n",
    "%2e%2e",
    "ä",
    "x" * 300,
    "a/" * 300 + "a",
]


def put(store: BlobStore, key: str, data: bytes) -> None:
    """Put `data` from a file, as every caller does."""
    with NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        store.put_file(key, Path(file.name))


def keys(store: BlobStore, prefix: str) -> list[str]:
    return [entry.key for entry in store.entries(prefix)]


@pytest.fixture
def store(tmp_path: Path) -> LocalBlobStore:
    return LocalBlobStore(tmp_path / "blobs")


def test_what_was_put_is_read_back(store: LocalBlobStore, tmp_path: Path) -> None:
    port: BlobStore = store
    source = tmp_path / "file"
    source.write_bytes(b"x" * 3_000_000)
    port.put_file("a/b/c", source)
    put(port, "a/b/d.bin", b"small")
    assert port.read("a/b/c") == source.read_bytes()
    with port.open("a/b/d.bin") as file:
        assert file.read() == b"small"
    assert (port.size("a/b/c"), port.size("a/b/d.bin"), port.size("a/b/e"), port.size("a/b")) == (
        3_000_000,
        5,
        None,
        None,
    )
    assert source.exists()


def test_keys_are_listed_by_prefix_in_order(store: LocalBlobStore) -> None:
    for key in ("images/t1/b", "images/t1/a", "images/t10/a", "uploads/u1/0"):
        put(store, key, b"x")
    assert keys(store, "images/t1") == ["images/t1/a", "images/t1/b", "images/t10/a"]
    assert keys(store, "images/t1/") == ["images/t1/a", "images/t1/b"]
    assert len(keys(store, "")) == 4
    assert keys(store, "nothing/") == []


def test_equal_content_again_is_no_event_and_other_content_a_conflict(store: LocalBlobStore) -> None:
    put(store, "k", b"one")
    put(store, "k", b"one")
    for other in (b"two", b"on", b"one!", b""):
        with pytest.raises(BlobConflict):
            put(store, "k", other)
    assert store.read("k") == b"one"
    assert keys(store, "") == ["k"]


def test_blobs_are_read_only_and_no_temporary_file_is_left(store: LocalBlobStore, tmp_path: Path) -> None:
    put(store, "a/k", b"one")
    files = [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]
    assert [path.name for path in files] == ["k"]
    assert files[0].stat().st_mode & 0o777 == 0o440


def test_delete_may_be_repeated(store: LocalBlobStore) -> None:
    put(store, "a/k", b"one")
    store.delete("a/k")
    store.delete("a/k")
    store.delete("never/there")
    with pytest.raises(BlobMissing):
        store.read("a/k")
    put(store, "a/k", b"two")
    assert store.read("a/k") == b"two"


@pytest.mark.parametrize("key", BAD_KEYS)
def test_no_key_leaves_the_root(key: str, store: LocalBlobStore, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(BlobKeyInvalid):
        put(store, key, b"x")
    for read in (store.read, store.size, store.open, store.delete):
        with pytest.raises(BlobKeyInvalid):
            read(key)
    assert sorted(tmp_path.rglob("*")) == before


def test_links_are_not_followed(store: LocalBlobStore, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    put(store, "a/k", b"one")
    inside = tmp_path / "blobs" / "a" / "link"
    inside.symlink_to(secret)
    (tmp_path / "blobs" / "out").symlink_to(tmp_path)
    assert store.size("a/link") is None
    assert keys(store, "") == ["a/k"]
    for key in ("a/link", "out/secret"):
        with pytest.raises(BlobError):
            store.read(key)
    with pytest.raises(BlobError):
        put(store, "out/new", b"x")
    assert not (tmp_path / "new").exists()


def test_of_many_writers_of_one_key_one_wins_and_the_others_hear_of_it(store: LocalBlobStore) -> None:
    outcomes: list[int | None] = []
    start = threading.Barrier(8)

    def write(number: int) -> None:
        start.wait()
        try:
            put(store, "k", bytes([number]) * 100_000)
            outcomes.append(number)
        except BlobConflict:
            outcomes.append(None)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [number for number in outcomes if number is not None]
    assert store.read("k") == bytes([winner]) * 100_000
    assert outcomes.count(None) == 7


def test_a_failed_write_leaves_nothing(store: LocalBlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        put(store, "k", b"x")
    monkeypatch.undo()
    assert store.size("k") is None
    assert not [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]


def test_a_file_system_without_hard_links_is_served_too(store: LocalBlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_paths: object, **_options: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    put(store, "k", b"one")
    put(store, "k", b"one")
    with pytest.raises(BlobConflict):
        put(store, "k", b"two")
    assert store.read("k") == b"one"


def test_a_source_reads_only_what_has_the_right_digest(store: LocalBlobStore, tmp_path: Path) -> None:
    data = b"normalised"
    digest = hashlib.sha256(data).hexdigest()
    put(store, image_key("ten_1", digest), data)
    source = AdapterSource(store)
    assert source.read_normalised("ten_1", digest) == data
    with pytest.raises(AdapterImageMissing):
        source.read_normalised("ten_2", digest)
    path = tmp_path / "blobs" / "images" / "ten_1" / digest
    path.chmod(0o640)
    path.write_bytes(b"Normalised")
    with pytest.raises(AdapterImageDamaged):
        source.read_normalised("ten_1", digest)


@pytest.mark.parametrize(
    ("tenant", "digest"), [("..", "0" * 64), ("a/b", "0" * 64), ("t", "../x"), ("t", "0" * 63), ("t", "A" * 64)]
)
def test_a_tenant_or_digest_that_is_none_is_missing(tenant: str, digest: str, store: LocalBlobStore) -> None:
    with pytest.raises(AdapterImageMissing):
        AdapterSource(store).read_normalised(tenant, digest)
