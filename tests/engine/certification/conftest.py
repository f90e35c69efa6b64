"""A tiny model that can read, and adapters for it as a validation job has them: the folder, the image, the digest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from lorikeet_engine.certification.measuring import Measurer
from tests.support.lora_files import normalise_folder, write_files
from tests.support.reading_model import save_reading_model
from tests.support.tiny_models import save_adapter

MEMORY_BYTES = 8 << 30


@dataclass(frozen=True)
class Made:
    """One adapter, uploaded and normalised."""

    folder: Path
    image: Path
    digest: str

    @property
    def given(self) -> dict[str, Any]:
        return {"folder": self.folder, "image": self.image, "digest": self.digest, "serving_dtype": "float32"}


Make = Callable[..., Made]


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_reading_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def measurer(model_dir: Path) -> Measurer:
    return Measurer(model_dir, "tiny", max_rank=64, memory_bytes=MEMORY_BYTES)


@pytest.fixture(scope="session")
def normalised(measurer: Measurer) -> Callable[[Path], Made]:
    def normalise(folder: Path) -> Made:
        _, digest, data = normalise_folder(folder, measurer.table)
        image = folder.with_suffix(".image")
        image.write_bytes(data)
        return Made(folder, image, digest)

    return normalise


@pytest.fixture
def make(model_dir: Path, normalised: Callable[[Path], Made], tmp_path: Path) -> Make:
    """An adapter of this model, saved by PEFT with these options of its configuration."""

    def make_adapter(*, filled_with: float | None = None, **options: Any) -> Made:
        number = len(list(tmp_path.iterdir()))
        settings = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"], **options}
        folder = save_adapter(model_dir, tmp_path / f"adapter-{number}", **settings)
        if filled_with is not None:
            weights = folder / "adapter_model.safetensors"
            state = {name: torch.full_like(tensor, filled_with) for name, tensor in load_file(weights).items()}
            save_file(state, weights)
        return normalised(folder)

    return make_adapter


@pytest.fixture
def foreign(tmp_path: Path) -> Made:
    """An adapter of a narrower model."""
    folder = write_files(tmp_path / "foreign").config.parent
    _, digest, data = normalise_folder(folder)
    (tmp_path / "foreign.image").write_bytes(data)
    return Made(folder, tmp_path / "foreign.image", digest)
