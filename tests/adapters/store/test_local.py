"""What only a directory can get wrong: links, modes, half-written files, file systems without links."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from lorikeet_adapters.store.blob import BlobConflict, BlobDamaged, BlobError
from lorikeet_adapters.store.local import LocalBlobStore
from tests.support.blobs import keys, put


def test_blobs_are_read_only_and_no_temporary_file_is_left(local: LocalBlobStore, tmp_path: Path) -> None:
    put(local, "a/k", b"one")
    files = [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]
    assert [path.name for path in files] == ["k"]
    assert files[0].stat().st_mode & 0o777 == 0o440


def test_links_are_not_followed(local: LocalBlobStore, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    put(local, "a/k", b"one")
    inside = tmp_path / "blobs" / "a" / "link"
    inside.symlink_to(secret)
    (tmp_path / "blobs" / "out").symlink_to(tmp_path)
    with pytest.raises(BlobDamaged):
        local.size("a/link")
    assert keys(local) == ["a/k"]
    for key in ("a/link", "out/secret"):
        with pytest.raises(BlobError):
            local.read(key)
    with pytest.raises(BlobError):
        put(local, "out/new", b"x")
    assert not (tmp_path / "new").exists()


def test_a_failed_write_leaves_nothing(local: LocalBlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        put(local, "k", b"x")
    monkeypatch.undo()
    assert local.size("k") is None
    assert not [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]


def test_a_file_system_without_hard_links_is_served_too(local: LocalBlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_paths: object, **_options: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    put(local, "k", b"one")
    put(local, "k", b"one")
    with pytest.raises(BlobConflict):
        put(local, "k", b"two")
    assert local.read("k") == b"one"


def test_a_pipe_in_a_files_place_is_refused_at_once(local: LocalBlobStore, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "blobs" / "pipe")
    with pytest.raises(BlobDamaged):
        local.read("pipe")
    assert keys(local) == []


def test_what_a_crash_left_is_removed_when_it_is_old(local: LocalBlobStore, tmp_path: Path) -> None:
    put(local, "a/k", b"one")
    left = tmp_path / "blobs" / "a" / f".{'0' * 32}"
    left.write_bytes(b"half")
    now_us = time.time_ns() // 1_000
    assert local.remove_remnants(now_us - 60_000_000) == 0
    assert left.exists()
    assert local.remove_remnants(now_us + 60_000_000) == 1
    assert not left.exists()
    assert keys(local) == ["a/k"]


def test_the_room_left_is_that_of_its_file_system(local: LocalBlobStore) -> None:
    space = local.free_space()
    assert space is not None
    assert 0 < space.free_bytes <= space.total_bytes


def test_a_blob_that_another_deletes_before_it_is_compared_is_put_again(
    local: LocalBlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = tmp_path / "content"
    content.write_bytes(b"bytes")
    local.put_file("a/b", content)
    compare = local._check_equal

    def deleted_meanwhile(key: str, temporary: Path) -> None:
        monkeypatch.setattr(local, "_check_equal", compare)
        local.delete(key)
        compare(key, temporary)

    monkeypatch.setattr(local, "_check_equal", deleted_meanwhile)
    local.put_file("a/b", content)
    assert local.read("a/b") == b"bytes"
