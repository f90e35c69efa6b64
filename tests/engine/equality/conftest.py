"""The real engine on the embedded model, in this process."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from lorikeet_adapters.image import pack_image
from lorikeet_adapters.source import image_key
from lorikeet_adapters.store.local import LocalBlobStore
from lorikeet_engine.build import LoadedModel, build_engine, load_model
from lorikeet_engine.config import MIB, EngineConfig
from lorikeet_engine.cost import kv_block_bytes
from lorikeet_engine.model_spec import ModelSpec, load_model_spec
from tests.engine.equality.bench import OTHER_TENANT, TENANT, AdapterStore, OpenBench, Workbench
from tests.engine.equality.prompts import adapter_dirs
from tests.engine.equality.record_reference import REFERENCE
from tests.support.lora_files import normalise_folder

FLOAT32_BYTES = 4


@pytest.fixture(scope="session")
def reference() -> dict[str, Any]:
    recorded: dict[str, Any] = json.loads(REFERENCE.read_text())
    return recorded


@pytest.fixture(scope="session")
def spec(embedded_model_dir: Path) -> ModelSpec:
    return load_model_spec(embedded_model_dir)


@pytest.fixture(scope="session")
def adapter_store(spec: ModelSpec, tmp_path_factory: pytest.TempPathFactory) -> AdapterStore:
    """A blob store with the demo adapters of two tenants, brought there as the validation job does."""
    folder = tmp_path_factory.mktemp("store")
    store, table = LocalBlobStore(folder), spec.module_table("base")
    digests, sizes = {}, []
    for name, path in adapter_dirs().items():
        normalised = folder / f"{name}.normalised"
        _, digests[name], data = normalise_folder(path, table)
        normalised.write_bytes(data)
        for tenant in (TENANT, OTHER_TENANT):
            store.put_file(image_key(tenant, digests[name]), normalised)
        image = pack_image(data, digest=digests[name], table=table, dtype=torch.float32)
        sizes.append(image.extent.nbytes)
    return AdapterStore(folder, digests, max(sizes))


@functools.cache
def loaded_once(model_dir: Path, dtype: str) -> LoadedModel:
    """All engines of the session share the model's tensors, which nothing writes to: loading them costs seconds."""
    return load_model(model_dir, dtype)


@pytest.fixture(scope="session")
def block_bytes(spec: ModelSpec) -> Callable[[int], int]:
    """Bytes of KV, in float32, of one block of so many tokens."""
    return lambda block_size: kv_block_bytes(spec, block_size=block_size, itemsize=FLOAT32_BYTES)


def _open(model_dir: Path, store: AdapterStore, **settings: Any) -> Workbench:
    chosen: dict[str, Any] = {
        "dtype": "float32",
        "threads": 1,
        "kv_cache_bytes": 256 * MIB,
        "adapter_pool_bytes": 64 * MIB,
        "max_num_seqs": 12,
        "max_num_batched_tokens": 128,
        "ttft_deadline": 0.0,  # how long a step takes here says nothing about serving
    }
    config = EngineConfig(
        model_dir=model_dir,
        model_name="smollm2",
        store_url=str(store.folder),
        endpoint="ipc://unused",
        **chosen | settings,
    )
    return Workbench(build_engine(config, loaded_once(model_dir, config.dtype)), store.digests, config)


@pytest.fixture
def open_bench(embedded_model_dir: Path, adapter_store: AdapterStore) -> Iterator[OpenBench]:
    """Builds engines with blocks of 16 tokens and contexts of 256, and whatever else a test says."""
    opened: list[Workbench] = []

    def open_one(**settings: Any) -> Workbench:
        opened.append(_open(embedded_model_dir, adapter_store, **{"block_size": 16, "max_model_len": 256} | settings))
        return opened[-1]

    yield open_one
    for bench in opened:
        bench.engine.close()


@pytest.fixture(scope="session")
def float32(embedded_model_dir: Path, adapter_store: AdapterStore) -> Iterator[Workbench]:
    bench = _open(embedded_model_dir, adapter_store)
    yield bench
    bench.engine.close()


@pytest.fixture(scope="session")
def bfloat16(embedded_model_dir: Path, adapter_store: AdapterStore) -> Iterator[Workbench]:
    bench = _open(embedded_model_dir, adapter_store, dtype="bfloat16")
    yield bench
    bench.engine.close()
