"""What every runner is given: one model, sixteen adapters and their copies in each peer's own format.

Everything is made once from the model's directory, kept under a folder of its own, and the same on every machine:
random numbers come from fixed seeds. Knows where each peer was installed, and nothing about running it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from lorikeet_adapters.digest import write_normalised
from lorikeet_adapters.modules import ModuleTable
from lorikeet_adapters.source import image_key
from lorikeet_adapters.store.local import LocalBlobStore
from lorikeet_adapters.validate import validate_adapter
from lorikeet_engine.model_spec import load_model_spec

RANKS = (8, 16, 32, 64)
N_ADAPTERS = 16
B_SCALE = 0.32  # times rank ** -0.5; so strong that answers of the wrong adapter are told from those of the right one
MODEL_NAME = "smollm2"
CONVERTERS = Path("llama-source/vendor/llama.cpp")


class MaterialsMissing(Exception):
    """A peer's converter failed; the message ends with what it said."""


@dataclass(frozen=True)
class Materials:
    """Paths below `root`; `install` is where the peers' environments are.

    Attributes:
        model_dir: the model, except that it names no end-of-sequence token: every answer has its full length.
        digests: by adapter name, what the engine calls it.
    """

    root: Path
    install: Path
    adapters: tuple[str, ...]
    digests: dict[str, str]

    @property
    def model_dir(self) -> Path:
        return self.root / "model"

    @property
    def adapters_dir(self) -> Path:
        return self.root / "adapters"

    @property
    def store_dir(self) -> Path:
        return self.root / "store"

    def gguf_dir(self) -> Path:
        """The model in BF16 and every adapter as llama.cpp reads them."""
        return _made_once(self.root / "gguf", self._write_ggufs)

    def ir_dir(self) -> Path:
        """The model as OpenVINO reads it, in FP16."""
        return _made_once(self.root / "openvino", self._write_ir)

    def _write_ggufs(self, folder: Path) -> None:
        converters, python = self.install / CONVERTERS, self.install / "llama/bin/python"
        _call(
            [python, converters / "convert_hf_to_gguf.py", self.model_dir],
            {"--outtype": "bf16", "--outfile": folder / "model.gguf"},
        )
        for name in self.adapters:
            _call(
                [python, converters / "convert_lora_to_gguf.py", self.adapters_dir / name],
                {"--base": self.model_dir, "--outtype": "bf16", "--outfile": folder / f"{name}.gguf"},
            )

    def _write_ir(self, folder: Path) -> None:
        cli = self.install / "openvino/bin/optimum-cli"
        _call(
            [cli, "export", "openvino", folder],
            {"-m": self.model_dir, "--task": "text-generation-with-past", "--weight-format": "fp16"},
        )


def prepare(model_dir: Path, install: Path) -> Materials:
    """The model's materials, made now unless they are there."""
    digest = hashlib.sha256((model_dir / "config.json").read_bytes())
    digest.update(repr((RANKS, N_ADAPTERS, B_SCALE)).encode())
    with (model_dir / "model.safetensors").open("rb") as file:
        digest.update(hashlib.file_digest(file, "sha256").digest())
    root = install / "materials" / digest.hexdigest()[:16]
    table = load_model_spec(model_dir).module_table(MODEL_NAME)
    _made_once(root / "model", lambda folder: _endless(model_dir.resolve(), folder))
    adapters = _made_once(root / "adapters", lambda folder: _write_adapters(folder, table))
    names = tuple(sorted(path.name for path in adapters.iterdir()))
    store = _made_once(root / "store", lambda folder: _fill_store(folder, adapters, table))
    return Materials(root, install, names, json.loads((store / "digests.json").read_text()))


def _made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """A folder appears under its name when it is complete."""
    if not folder.is_dir():
        work = folder.with_name(f"{folder.name}.incomplete")
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        make(work)
        work.rename(folder)
    return folder


def _endless(model_dir: Path, folder: Path) -> None:
    for path in model_dir.iterdir():
        if path.name in ("config.json", "generation_config.json"):
            (folder / path.name).write_text(json.dumps(json.loads(path.read_text()) | {"eos_token_id": None}, indent=2))
        else:
            (folder / path.name).symlink_to(path)


def _write_adapters(folder: Path, table: ModuleTable) -> None:
    """All linears, ranks in turn, alpha twice the rank, both matrices random: A as PEFT begins, B not zero."""
    for index in range(N_ADAPTERS):
        rank = RANKS[index % len(RANKS)]
        target = folder / f"a{index:02}-r{rank}"
        target.mkdir()
        save_file(_pairs(table, rank, np.random.default_rng(index)), target / "adapter_model.safetensors")
        (target / "adapter_config.json").write_text(json.dumps(_lora_config(table, rank), indent=2))


def _pairs(table: ModuleTable, rank: int, random: np.random.Generator) -> dict[str, np.ndarray[Any, Any]]:
    pairs = {}
    for layer in range(table.n_layers):
        for module, linear in table.linears.items():
            prefix, bound = f"base_model.model.model.layers.{layer}.{module}", linear.in_features**-0.5
            a = random.uniform(-bound, bound, (rank, linear.in_features))
            b = random.normal(0.0, B_SCALE * rank**-0.5, (linear.out_features, rank))
            pairs[f"{prefix}.lora_A.weight"] = a.astype(np.float32)
            pairs[f"{prefix}.lora_B.weight"] = b.astype(np.float32)
    return pairs


def _lora_config(table: ModuleTable, rank: int) -> dict[str, Any]:
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": MODEL_NAME,
        "r": rank,
        "lora_alpha": 2 * rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": [module.split(".")[-1] for module in table.linears],
        "inference_mode": True,
    }


def _fill_store(folder: Path, adapters: Path, table: ModuleTable) -> None:
    """Every adapter the way an upload takes: checked, normalised, kept by its digest, for a tenant of its name."""
    store, digests = LocalBlobStore(folder), {}
    for path in sorted(adapters.iterdir()):
        weights, normalised = path / "adapter_model.safetensors", folder / "normalised"
        adapter = validate_adapter(
            config=path / "adapter_config.json", weights=[weights], index=None, table=table, max_rank=max(RANKS)
        )
        with normalised.open("wb") as out:
            digests[path.name] = write_normalised(adapter, [weights], out)
        store.put_file(image_key(path.name, digests[path.name]), normalised)
        normalised.unlink()
    (folder / "digests.json").write_text(json.dumps(digests))


def _call(command: Sequence[str | Path], options: Mapping[str, str | Path]) -> None:
    """Run a converter; what it says is shown only when it fails."""
    words = [str(word) for word in (*command, *(word for option in options.items() for word in option))]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise MaterialsMissing(f"{' '.join(words[:3])} failed:\n{done.stdout[-4000:]}")
