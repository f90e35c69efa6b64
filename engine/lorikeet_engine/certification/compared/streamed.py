"""A base model that does not fit into memory in float32: every linear is read from its file when it is multiplied with.

The decoder and its arithmetic are the same; only what a linear holds is a place in the checkpoint. The embedding stays
in memory, since rows of it are looked up.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch.nn import functional as F

from lorikeet_engine.errors import UnsupportedModel
from lorikeet_engine.model_spec import ModelSpec
from lorikeet_engine.models.weights import LayerWeights, Weights
from lorikeet_engine.ops.cpu import CpuOps
from lorikeet_engine.ops.interface import PackedLinear

_DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


@dataclass(frozen=True, slots=True)
class _Place:
    path: Path
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class Checkpoint:
    """The tensors of a model directory by name, read one at a time."""

    def __init__(self, model_dir: Path) -> None:
        self._places = {name: place for path in model_dir.glob("*.safetensors") for name, place in _places(path)}

    @property
    def n_elements(self) -> int:
        """Numbers in all tensors together."""
        return sum(torch.Size(place.shape).numel() for place in self._places.values())

    def read(self, name: str) -> torch.Tensor:
        """Float32. Raises UnsupportedModel."""
        return self.read_rows(name, 0, self.shape(name)[0])

    def read_rows(self, name: str, first: int, end: int) -> torch.Tensor:
        """Float32, of the first axis. Raises UnsupportedModel."""
        place = self._places.get(name)
        if place is None or place.dtype not in _DTYPES:
            raise UnsupportedModel(f"{name}: {'not in the weights' if place is None else place.dtype}")
        n_rows, *rest = place.shape
        row_bytes = (place.end - place.begin) // n_rows
        data = bytearray((end - first) * row_bytes)
        with place.path.open("rb") as file:
            file.seek(place.begin + first * row_bytes)
            file.readinto(data)
        return torch.frombuffer(data, dtype=_DTYPES[place.dtype]).view(end - first, *rest).float()

    def shape(self, name: str) -> tuple[int, ...]:
        place = self._places.get(name)
        if place is None:
            raise UnsupportedModel(f"{name}: not in the weights")
        return place.shape


def _places(path: Path) -> Sequence[tuple[str, _Place]]:
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header: Mapping[str, Any] = json.loads(file.read(size))
    start = 8 + size
    return [
        (name, _Place(path, entry["dtype"], tuple(entry["shape"]), *(start + at for at in entry["data_offsets"])))
        for name, entry in header.items()
        if name != "__metadata__"
    ]


class StreamedLinear:
    """What `PackedLinear` is, of the named linears fused along their outputs."""

    def __init__(self, checkpoint: Checkpoint, names: Sequence[str], *, has_bias: bool) -> None:
        self._checkpoint = checkpoint
        self._weights = [f"{name}.weight" for name in names]
        shapes = [checkpoint.shape(name) for name in self._weights]
        self.in_features = shapes[0][1]
        self.out_features = sum(shape[0] for shape in shapes)
        self.bias = torch.cat([checkpoint.read(f"{name}.bias") for name in names]) if has_bias else None
        self.nbytes = 0

    @property
    def weight(self) -> torch.Tensor:
        return torch.cat([self._checkpoint.read(name) for name in self._weights])

    def rows(self, first: int, end: int, n_rows: int) -> Iterator[torch.Tensor]:
        """Rows first to end, at most `n_rows` at a time; no others are read, and each once."""
        start = 0
        for name in self._weights:
            stop = start + self._checkpoint.shape(name)[0]
            for begin in range(max(first, start), min(end, stop), n_rows):
                yield self._checkpoint.read_rows(name, begin - start, min(begin + n_rows, end, stop) - start)
            start = stop


class PlainOps(CpuOps):
    """Linears as they lie in a file."""

    def pack_linear(self, *, weight: torch.Tensor, bias: torch.Tensor | None) -> PackedLinear:
        return PackedLinear(weight, bias, weight.shape[1], weight.shape[0])

    def unpack_linear(self, *, linear: PackedLinear, first: int, end: int, n_rows: int) -> Iterator[torch.Tensor]:
        held: object = linear
        if isinstance(held, StreamedLinear):
            yield from held.rows(first, end, n_rows)
        else:
            yield from torch.split(linear.weight[first:end], n_rows)

    def linear(self, *, x: torch.Tensor, linear: PackedLinear) -> torch.Tensor:
        return F.linear(x, linear.weight, linear.bias)


def streamed_weights(checkpoint: Checkpoint, spec: ModelSpec, ops: PlainOps) -> Weights:
    """The model over its checkpoint; raises UnsupportedModel for a tensor that is not there."""
    embedding = checkpoint.read("model.embed_tokens.weight")
    tied = ops.pack_linear(weight=embedding, bias=None)
    return Weights(
        embedding=embedding,
        layers=tuple(_layer(checkpoint, spec, f"model.layers.{layer}.") for layer in range(spec.n_layers)),
        final_norm=checkpoint.read("model.norm.weight"),
        head=tied if spec.tied_embeddings else _linear(checkpoint, "", ("lm_head",), has_bias=False),
    )


def _layer(checkpoint: Checkpoint, spec: ModelSpec, prefix: str) -> LayerWeights:
    attention, mlp = f"{prefix}self_attn.", f"{prefix}mlp."
    return LayerWeights(
        attention_norm=checkpoint.read(f"{prefix}input_layernorm.weight"),
        qkv=_linear(checkpoint, attention, ("q_proj", "k_proj", "v_proj"), has_bias=spec.qkv_bias),
        q_norm=checkpoint.read(f"{attention}q_norm.weight") if spec.qk_norm else None,
        k_norm=checkpoint.read(f"{attention}k_norm.weight") if spec.qk_norm else None,
        o=_linear(checkpoint, attention, ("o_proj",), has_bias=spec.o_bias),
        mlp_norm=checkpoint.read(f"{prefix}post_attention_layernorm.weight"),
        gate_up=_linear(checkpoint, mlp, ("gate_proj", "up_proj"), has_bias=spec.mlp_bias),
        down=_linear(checkpoint, mlp, ("down_proj",), has_bias=spec.mlp_bias),
    )


def _linear(checkpoint: Checkpoint, prefix: str, names: Sequence[str], *, has_bias: bool) -> PackedLinear:
    # It has all that a PackedLinear has, but its weight is made when it is asked for.
    return cast(PackedLinear, StreamedLinear(checkpoint, [prefix + name for name in names], has_bias=has_bias))
