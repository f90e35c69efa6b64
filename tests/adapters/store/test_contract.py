"""What every store promises, held against each: it keeps what it was given, once, whole, and under its key."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from lorikeet_adapters.store.blob import BlobConflict, BlobKeyInvalid, BlobMissing, BlobStore
from tests.support.blobs import keys, put

MIB = 1 << 20
LARGE = 19 * MIB + 3  # in parts, and read by several ranges
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


def test_what_was_put_is_read_back(store: BlobStore, tmp_path: Path) -> None:
    source = tmp_path / "file"
    source.write_bytes(b"x" * 3_000_000)
    store.put_file("a/b/c", source)
    put(store, "a/b/d.bin", b"small")
    put(store, "a/b/empty", b"")
    assert store.read("a/b/c") == source.read_bytes()
    assert store.read("a/b/empty") == b""
    with store.open("a/b/d.bin") as file:
        assert file.read() == b"small"
    assert [store.size(f"a/b/{name}") for name in ("c", "d.bin", "empty", "e")] == [3_000_000, 5, 0, None]
    assert store.size("a/b") is None
    assert source.exists()


def test_a_large_blob_is_read_whole_in_pieces_and_from_any_place(store: BlobStore, tmp_path: Path) -> None:
    content = os.urandom(MIB) * (LARGE // MIB) + b"end"
    source = tmp_path / "file"
    source.write_bytes(content)
    store.put_file("large", source)
    assert store.size("large") == len(content)
    assert store.read("large") == content
    with store.open("large") as file:
        pieces = [file.read(5 * MIB) for _ in range(5)]
        assert b"".join(pieces) == content
        file.seek(-3, os.SEEK_END)
        assert file.read() == b"end"
        file.seek(9 * MIB)
        assert (file.read(10), file.tell()) == (content[9 * MIB : 9 * MIB + 10], 9 * MIB + 10)
    assert keys(store) == ["large"]


def test_blobs_are_listed_by_prefix_in_order_with_size_and_age(store: BlobStore) -> None:
    began_us = time.time_ns() // 1_000
    for key in ("images/t1/b", "images/t1/a", "images/t10/a", "uploads/u1/0"):
        put(store, key, key.encode())
    assert keys(store, "images/t1") == ["images/t1/a", "images/t1/b", "images/t10/a"]
    assert keys(store, "images/t1/") == ["images/t1/a", "images/t1/b"]
    assert len(keys(store)) == 4
    assert keys(store, "nothing/") == []
    for entry in store.entries(""):
        assert entry.bytes == len(entry.key)
        assert abs(entry.modified_us - began_us) < 5_000_000


@pytest.mark.parametrize("size", [3, LARGE])
def test_equal_content_again_is_no_event_and_other_content_a_conflict(store: BlobStore, size: int) -> None:
    content = bytes(size)
    put(store, "k", content)
    put(store, "k", content)
    for other in (content[:-1] + b"x", content[:-1], content + b"!", b""):
        with pytest.raises(BlobConflict):
            put(store, "k", other)
    assert store.read("k") == content
    assert keys(store) == ["k"]


def test_delete_may_be_repeated(store: BlobStore) -> None:
    put(store, "a/k", b"one")
    store.delete("a/k")
    store.delete("a/k")
    store.delete("never/there")
    with pytest.raises(BlobMissing):
        store.read("a/k")
    with pytest.raises(BlobMissing):
        store.open("a/k")
    put(store, "a/k", b"two")
    assert store.read("a/k") == b"two"


@pytest.mark.parametrize("key", BAD_KEYS)
def test_no_key_leaves_the_store(key: str, store: BlobStore, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(BlobKeyInvalid):
        put(store, key, b"x")
    for read in (store.read, store.size, store.open, store.delete):
        with pytest.raises(BlobKeyInvalid):
            read(key)
    assert sorted(tmp_path.rglob("*")) == before
    assert keys(store) == []


@pytest.mark.parametrize("size", [100_000, LARGE])
def test_of_many_writers_of_one_key_one_wins_and_the_others_hear_of_it(store: BlobStore, size: int) -> None:
    n_writers = 6 if size < MIB else 3
    outcomes: list[int | None] = []
    start = threading.Barrier(n_writers)

    def write(number: int) -> None:
        start.wait()
        try:
            put(store, "k", bytes([number]) * size)
            outcomes.append(number)
        except BlobConflict:
            outcomes.append(None)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(n_writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [number for number in outcomes if number is not None]
    assert store.read("k") == bytes([winner]) * size
    assert outcomes.count(None) == n_writers - 1
    assert keys(store) == ["k"]
