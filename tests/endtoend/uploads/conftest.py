"""One gateway process for the tests of cut uploads, and adapters large enough to be cut."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.lora_files import tensor_name, with_header
from tests.support.upload_gateway import UploadGateway

MIB = 1 << 20
WIDTH, RANK = 2048, 128
PAIR_BYTES = 2 * WIDTH * RANK * 4


def write_weights(path: Path, *, n_pairs: int, seed: int) -> None:
    """Pairs of q_proj, one a layer; every byte is random, so that slices in a wrong order show."""
    entries, at = {}, 0
    for layer in range(n_pairs):
        for side, shape in (("A", (RANK, WIDTH)), ("B", (WIDTH, RANK))):
            offsets = [at, at := at + PAIR_BYTES // 2]
            name = tensor_name(layer, "self_attn.q_proj", side)
            entries[name] = {"dtype": "F32", "shape": shape, "data_offsets": offsets}
    random = np.random.default_rng(seed)
    with path.open("wb") as file:
        file.write(with_header(json.dumps(entries).encode()))
        for _ in range(n_pairs):
            file.write(random.random(PAIR_BYTES // 4, dtype=np.float32).tobytes())


@pytest.fixture(scope="session")
def gateway(embedded_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[UploadGateway]:
    folder = tmp_path_factory.mktemp("g")
    running = UploadGateway(folder, embedded_model_dir.parent)
    yield running
    running.close()
    shutil.rmtree(folder)  # hundreds of megabytes


@pytest.fixture(scope="module")
def make_adapter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], Path]]:
    """Writes an adapter of about so many bytes, of content that no other has."""
    folder = tmp_path_factory.mktemp("a")
    made = 0

    def make(n_bytes: int) -> Path:
        nonlocal made
        made += 1
        target = folder / str(made)
        target.mkdir()
        write_weights(target / "adapter_model.safetensors", n_pairs=max(1, n_bytes // PAIR_BYTES), seed=made)
        config = {"peft_type": "LORA", "r": RANK, "lora_alpha": RANK, "target_modules": ["q_proj"], "bias": "none"}
        (target / "adapter_config.json").write_text(json.dumps(config | {"task_type": "CAUSAL_LM"}))
        return target

    yield make
    shutil.rmtree(folder)
