"""Adapter files for tests: written by hand, byte by byte where a test needs a broken one, or by PEFT itself."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lorikeet_adapters.digest import write_normalised
from lorikeet_adapters.files import CONFIG_FILE, INDEX_FILE, is_adapter_file, shard_names, weight_files
from lorikeet_adapters.modules import MODULES, Linear, ModuleTable
from lorikeet_adapters.validate import ValidatedAdapter, validate_adapter

HIDDEN = 32
KV = 16
INTERMEDIATE = 48
N_LAYERS = 2
WIDTHS = {
    "self_attn.q_proj": (HIDDEN, HIDDEN),
    "self_attn.k_proj": (HIDDEN, KV),
    "self_attn.v_proj": (HIDDEN, KV),
    "self_attn.o_proj": (HIDDEN, HIDDEN),
    "mlp.gate_proj": (HIDDEN, INTERMEDIATE),
    "mlp.up_proj": (HIDDEN, INTERMEDIATE),
    "mlp.down_proj": (INTERMEDIATE, HIDDEN),
}
TABLE = ModuleTable("tiny-llama", N_LAYERS, {module: Linear(*WIDTHS[module]) for module in MODULES})
DTYPES = {"float32": "F32", "float16": "F16", "uint16": "BF16"}
PEFT_PREFIX = "base_model.model.model."
CONFIG: dict[str, Any] = {
    "peft_type": "LORA",
    "task_type": "CAUSAL_LM",
    "r": 4,
    "lora_alpha": 8,
    "bias": "none",
    "target_modules": ["q_proj", "v_proj"],
    "base_model_name_or_path": "tiny-llama",
}


@dataclass(frozen=True)
class AdapterFiles:
    """The two files of one adapter."""

    config: Path
    weights: Path


def tensor_name(layer: int, module: str, side: str, *, prefix: str = PEFT_PREFIX, adapter: str = "") -> str:
    return f"{prefix}layers.{layer}.{module}.lora_{side}{adapter}.weight"


def vector_name(layer: int, module: str, kind: str, *, prefix: str = PEFT_PREFIX, adapter: str = "") -> str:
    """The name PEFT gives the vector of a pair; `kind` is "lora_bias" or "use_dora"."""
    part = f"lora_B{adapter}.bias" if kind == "lora_bias" else f"lora_magnitude_vector{adapter}"
    return f"{prefix}layers.{layer}.{module}.{part}"


def tensors(
    *,
    layers: tuple[int, ...] = (0, 1),
    modules: tuple[str, ...] = ("self_attn.q_proj", "self_attn.v_proj"),
    rank: int = 4,
    seed: int = 0,
    prefix: str = PEFT_PREFIX,
    adapter: str = "",
    vectors: str = "",
) -> dict[str, np.ndarray[Any, Any]]:
    """Random float32 pairs under the names PEFT would give them; `vectors` is the option that brings each its own."""
    generator = np.random.default_rng(seed)
    result = {}
    for layer in layers:
        for module in modules:
            n_in, n_out = WIDTHS[module]
            for side, shape in (("A", (rank, n_in)), ("B", (n_out, rank))):
                name = tensor_name(layer, module, side, prefix=prefix, adapter=adapter)
                result[name] = generator.standard_normal(shape, dtype=np.float32)
            if vectors:
                name = vector_name(layer, module, vectors, prefix=prefix, adapter=adapter)
                result[name] = generator.standard_normal(n_out, dtype=np.float32)
    return result


def safetensors_bytes(
    content: Mapping[str, np.ndarray[Any, Any]],
    *,
    dtype: str | None = None,
    metadata: Mapping[str, str] | None = None,
) -> bytes:
    """A sound file; the arrays are written as they are, `dtype` only names them (uint16 means bfloat16)."""
    entries: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    data = b""
    for name, array in content.items():
        raw = array.tobytes()
        offsets = [len(data), len(data) + len(raw)]
        entries[name] = {
            "dtype": dtype or DTYPES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": offsets,
        }
        data += raw
    return with_header(json.dumps(entries).encode(), data)


def with_header(header: bytes, data: bytes = b"") -> bytes:
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + data


def write_files(
    folder: Path,
    content: Mapping[str, np.ndarray[Any, Any]] | bytes | None = None,
    config: Mapping[str, Any] | bytes | None = None,
    **changes: Any,
) -> AdapterFiles:
    """Both files; `changes` are configuration fields on top of CONFIG."""
    folder.mkdir(parents=True, exist_ok=True)
    files = AdapterFiles(folder / "adapter_config.json", folder / "adapter_model.safetensors")
    fields = {**CONFIG, **changes} if config is None else config
    files.config.write_bytes(fields if isinstance(fields, bytes) else json.dumps(fields).encode())
    weights = tensors() if content is None else content
    files.weights.write_bytes(weights if isinstance(weights, bytes) else safetensors_bytes(weights))
    return files


def write_shards(
    folder: Path, shards: Sequence[Mapping[str, np.ndarray[Any, Any]]], index: Any = None, **changes: Any
) -> Path:
    """A configuration, the shards, and their index, or the `index` that is given instead."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG_FILE).write_text(json.dumps({**CONFIG, **changes}))
    names = shard_names(len(shards))
    for name, content in zip(names, shards, strict=True):
        (folder / name).write_bytes(safetensors_bytes(content, metadata={"format": "pt"}))
    if index is None:
        size = sum(array.nbytes for content in shards for array in content.values())
        places = {tensor: name for name, content in zip(names, shards, strict=True) for tensor in content}
        index = {"metadata": {"total_size": size}, "weight_map": places}
    (folder / INDEX_FILE).write_bytes(index if isinstance(index, bytes) else json.dumps(index).encode())
    return folder


def validate_folder(folder: Path, table: ModuleTable = TABLE, *, max_rank: int = 64) -> ValidatedAdapter:
    """The adapter in the files of `folder` that belong to one."""
    weights, index = _weights(folder)
    return validate_adapter(config=folder / CONFIG_FILE, weights=weights, index=index, table=table, max_rank=max_rank)


def normalise_folder(
    folder: Path, table: ModuleTable = TABLE, *, max_rank: int = 64
) -> tuple[ValidatedAdapter, str, bytes]:
    """The adapter in `folder`, its digest, and its normalised file."""
    adapter = validate_folder(folder, table, max_rank=max_rank)
    out = io.BytesIO()
    digest = write_normalised(adapter, _weights(folder)[0], out)
    return adapter, digest, out.getvalue()


def _weights(folder: Path) -> tuple[list[Path], Path | None]:
    names = [entry.name for entry in folder.iterdir() if is_adapter_file(entry.name)]
    index = folder / INDEX_FILE
    return [folder / name for name in weight_files(names)], index if index.exists() else None
