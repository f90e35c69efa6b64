"""N-41: the engine reads an adapter only when its bytes are those that were validated, wherever they lie."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from lorikeet_adapters.digest import NormalisedAdapter, read_normalised_file
from lorikeet_adapters.errors import AdapterImageDamaged, AdapterImageMissing
from lorikeet_adapters.source import AdapterSource, image_key
from lorikeet_adapters.store.blob import BlobStore
from lorikeet_adapters.store.local import LocalBlobStore
from tests.support.blobs import put

DATA = b"normalised" * 1000
DIGEST = hashlib.sha256(DATA).hexdigest()
KEY = image_key("ten_1", DIGEST)


def read_as_the_engine_does(store: BlobStore) -> NormalisedAdapter:
    return read_normalised_file(AdapterSource(store).read_normalised("ten_1", DIGEST), DIGEST)


def test_what_was_validated_is_read_by_its_tenant_alone(store: BlobStore) -> None:
    put(store, KEY, DATA)
    source = AdapterSource(store)
    assert source.read_normalised("ten_1", DIGEST) == DATA
    with pytest.raises(AdapterImageMissing):
        source.read_normalised("ten_2", DIGEST)


@pytest.mark.parametrize("found", [DATA[:-1], DATA[:-1] + b"D", DATA + b"d", b""])
def test_n_41_other_bytes_under_the_digest_are_damage(found: bytes, store: BlobStore) -> None:
    put(store, KEY, found)
    with pytest.raises(AdapterImageDamaged):
        read_as_the_engine_does(store)


@pytest.mark.parametrize("damage", ["flipped", "truncated", "a link to equal bytes", "a linked folder"])
def test_n_41_a_file_changed_behind_the_stores_back_is_damage(
    damage: str, local: LocalBlobStore, tmp_path: Path
) -> None:
    put(local, KEY, DATA)
    path = tmp_path / "blobs" / KEY
    path.chmod(0o640)
    match damage:
        case "flipped":
            path.write_bytes(DATA[:-1] + b"D")
        case "truncated":
            path.write_bytes(DATA[:100])
        case "a link to equal bytes":
            path.rename(tmp_path / "elsewhere")
            path.symlink_to(tmp_path / "elsewhere")
        case "a linked folder":
            path.parent.rename(tmp_path / "elsewhere")
            path.parent.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AdapterImageDamaged) as refusal:
        read_as_the_engine_does(local)
    assert refusal.value.code == "integrity_error"
    assert str(tmp_path) not in str(refusal.value)


def test_a_deleted_file_is_missing(store: BlobStore) -> None:
    put(store, KEY, DATA)
    store.delete(KEY)
    with pytest.raises(AdapterImageMissing):
        AdapterSource(store).read_normalised("ten_1", DIGEST)


@pytest.mark.parametrize(
    ("tenant", "digest"), [("..", "0" * 64), ("a/b", "0" * 64), ("t", "../x"), ("t", "0" * 63), ("t", "A" * 64)]
)
def test_a_tenant_or_digest_that_is_none_is_missing(tenant: str, digest: str, local: LocalBlobStore) -> None:
    with pytest.raises(AdapterImageMissing):
        AdapterSource(local).read_normalised(tenant, digest)
