"""Loading adapters in the background."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from lorikeet_adapters.errors import AdapterImageMissing
from lorikeet_adapters.image import AdapterImage, pack_image
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.lora.loader import AdapterLoader, LoadedAdapter
from tests.support.lora_files import TABLE, normalise_folder, tensors, write_files


class HeldSource:
    """A store that answers only when it is let; counts the reads."""

    def __init__(self) -> None:
        self.files: dict[tuple[str, str], bytes] = {}
        self.gate = threading.Event()
        self.failure: Exception | None = None
        self.n_reads = 0

    def read_normalised(self, tenant: str, digest: str) -> bytes:
        self.n_reads += 1
        self.gate.wait(5)
        if self.failure:
            raise self.failure
        if (tenant, digest) not in self.files:
            raise AdapterImageMissing(digest)
        return self.files[tenant, digest]


@pytest.fixture
def source() -> HeldSource:
    return HeldSource()


@pytest.fixture
def loader(source: HeldSource) -> Iterator[AdapterLoader]:
    loader = AdapterLoader(source, TABLE, torch.bfloat16, max_rank=8)
    yield loader
    source.gate.set()
    loader.close()


def store_adapter(source: HeldSource, folder: Path, *, rank: int = 4) -> AdapterKey:
    write_files(folder, tensors(rank=rank), r=rank)
    _, digest, data = normalise_folder(folder)
    source.files["north", digest] = data
    return AdapterKey("north", digest)


def wait_for(loader: AdapterLoader) -> LoadedAdapter:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if loaded := loader.poll():
            return loaded[0]
        time.sleep(0.001)
    raise AssertionError("nothing was loaded in 5 s")


def test_an_image_arrives_packed_for_the_arena(loader: AdapterLoader, source: HeldSource, tmp_path: Path) -> None:
    key = store_adapter(source, tmp_path)
    loader.start(key)
    assert loader.poll() == []
    source.gate.set()
    loaded = wait_for(loader)
    assert (loaded.key, loaded.error) == (key, None)
    assert loaded.image is not None
    assert loaded.image.extent.dtype == torch.bfloat16
    assert loader.poll() == []


def test_two_requests_for_an_adapter_read_it_once(loader: AdapterLoader, source: HeldSource, tmp_path: Path) -> None:
    key = store_adapter(source, tmp_path)
    loader.start(key)
    loader.start(key)
    source.gate.set()
    assert wait_for(loader).image is not None
    assert source.n_reads == 1
    loader.start(key)
    assert wait_for(loader).image is not None


def test_an_adapter_of_another_tenant_is_missing(loader: AdapterLoader, source: HeldSource, tmp_path: Path) -> None:
    source.gate.set()
    loader.start(AdapterKey("south", store_adapter(source, tmp_path).digest))
    loaded = wait_for(loader)
    assert loaded.image is None
    assert loaded.error is not None
    assert "holds no adapter" in loaded.error.message


@pytest.mark.parametrize("damage", [b"", b"x" * 100])
def test_a_damaged_file_fails_its_load_only(
    loader: AdapterLoader, source: HeldSource, tmp_path: Path, damage: bytes
) -> None:
    key = store_adapter(source, tmp_path)
    source.files["north", key.digest] = damage
    source.gate.set()
    loader.start(key)
    loaded = wait_for(loader)
    assert loaded.error is not None
    assert "damaged" in loaded.error.message
    assert loaded.error.code == "integrity_error"


def test_a_rank_beyond_the_configured_one_is_named(loader: AdapterLoader, source: HeldSource, tmp_path: Path) -> None:
    key = store_adapter(source, tmp_path, rank=16)
    source.gate.set()
    loader.start(key)
    error = wait_for(loader).error
    assert error is not None
    assert "rank is 16, allowed here: at most 8" in error.message


def test_a_failing_store_is_reported_without_its_text(loader: AdapterLoader, source: HeldSource) -> None:
    source.failure = PermissionError("a path that tenants must not see")
    source.gate.set()
    loader.start(AdapterKey("north", "0" * 64))
    error = wait_for(loader).error
    assert error is not None
    assert "PermissionError" in error.message
    assert "path" not in error.message


def test_two_loads_read_at_once_and_pack_one_after_the_other(
    loader: AdapterLoader, source: HeldSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packing: list[int] = []
    most: list[int] = []

    def pack(*given: Any, **named: Any) -> AdapterImage:
        packing.append(1)
        most.append(len(packing))
        time.sleep(0.02)
        packing.pop()
        return pack_image(*given, **named)

    monkeypatch.setattr("lorikeet_engine.lora.loader.pack_image", pack)
    keys = [store_adapter(source, tmp_path / str(rank), rank=rank) for rank in (2, 4)]
    for key in keys:
        loader.start(key)
    while source.n_reads < 2:
        time.sleep(0.001)
    source.gate.set()
    loader.close()
    assert {loaded.key for loaded in loader.poll()} == set(keys)
    assert most == [1, 1]
