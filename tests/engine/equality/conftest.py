"""The real engine on the embedded model, in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lorikeet_adapters.digest import write_normalised
from lorikeet_adapters.store.local import LocalBlobStore
from lorikeet_adapters.validate import validate_adapter
from lorikeet_engine.build import build_engine
from lorikeet_engine.config import EngineConfig
from lorikeet_engine.model_spec import load_model_spec
from tests.engine.equality.bench import TENANT, Workbench
from tests.engine.equality.prompts import adapter_dirs
from tests.engine.equality.record_reference import REFERENCE

MIB = 1 << 20


@pytest.fixture(scope="session")
def reference() -> dict[str, Any]:
    recorded: dict[str, Any] = json.loads(REFERENCE.read_text())
    return recorded


@pytest.fixture(scope="session")
def adapter_store(embedded_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A blob store with the demo adapters, brought there as the validation job does."""
    folder = tmp_path_factory.mktemp("store")
    store = LocalBlobStore(folder)
    table = load_model_spec(embedded_model_dir).module_table("base")
    digests = {}
    for name, path in adapter_dirs().items():
        weights = path / "adapter_model.safetensors"
        validated = validate_adapter(config=path / "adapter_config.json", weights=weights, table=table, max_rank=64)
        normalised = folder / f"{name}.normalised"
        digests[name] = write_normalised(validated, weights, normalised)
        store.put_file(f"images/{TENANT}/{digests[name]}", normalised)
    return folder, digests


def _build(model_dir: Path, store: tuple[Path, dict[str, str]], dtype: str) -> Iterator[Workbench]:
    config = EngineConfig(
        model_dir=model_dir,
        model_name="smollm2",
        store_dir=store[0],
        endpoint="ipc://unused",
        dtype=dtype,
        threads=2,
        kv_cache_bytes=256 * MIB,
        adapter_pool_bytes=64 * MIB,
        max_num_seqs=12,
        max_num_batched_tokens=128,
    )
    engine = build_engine(config)
    yield Workbench(engine, store[1], config)
    engine.close()


@pytest.fixture(scope="session")
def float32(embedded_model_dir: Path, adapter_store: tuple[Path, dict[str, str]]) -> Iterator[Workbench]:
    yield from _build(embedded_model_dir, adapter_store, "float32")


@pytest.fixture(scope="session")
def bfloat16(embedded_model_dir: Path, adapter_store: tuple[Path, dict[str, str]]) -> Iterator[Workbench]:
    yield from _build(embedded_model_dir, adapter_store, "bfloat16")
