"""Reading a checkpoint: safetensors files straight into the fused, packed form the layers use.

One tensor is held twice at most, the one being packed. Every tensor of the files must be known and every expected one
must be there with the expected shape: a silently ignored weight is a wrong model.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from lorikeet_engine.errors import UnsupportedModel
from lorikeet_engine.model_spec import ModelSpec
from lorikeet_engine.ops.interface import Ops, PackedLinear

MAX_NAMED = 5  # a refusal names this many tensors, then counts


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer; norms are plain vectors, `q_norm` and `k_norm` exist in models with QK norm only."""

    attention_norm: torch.Tensor
    qkv: PackedLinear
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    o: PackedLinear
    mlp_norm: torch.Tensor
    gate_up: PackedLinear
    down: PackedLinear

    @property
    def nbytes(self) -> int:
        norms = (self.attention_norm, self.mlp_norm, self.q_norm, self.k_norm)
        linears = (self.qkv, self.o, self.gate_up, self.down)
        return sum(norm.nbytes for norm in norms if norm is not None) + sum(linear.nbytes for linear in linears)


@dataclass(frozen=True, slots=True)
class Weights:
    """A whole model. `head` is packed apart from `embedding` even when they are tied: lookup and product want
    different layouts."""

    embedding: torch.Tensor
    layers: tuple[LayerWeights, ...]
    final_norm: torch.Tensor
    head: PackedLinear

    @property
    def nbytes(self) -> int:
        layers = sum(layer.nbytes for layer in self.layers)
        return self.embedding.nbytes + layers + self.final_norm.nbytes + self.head.nbytes

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding.dtype


def load_weights(
    model_dir: Path,
    spec: ModelSpec,
    *,
    dtype: torch.dtype,
    ops: Ops,
    packed_from: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> Weights:
    """Read the checkpoint of a local Hugging Face directory, single or sharded, onto the device.

    `packed_from`: what the linears' weights are when `ops` packs them, `dtype` unless it makes another form of them,
    which should come from the checkpoint's own numbers.

    Raises:
        UnsupportedModel: tensors are missing, unknown or of another shape, or a file is damaged; with their names.
    """
    with ExitStack() as stack:
        try:
            files = [stack.enter_context(safe_open(path, framework="pt")) for path in _weight_files(model_dir)]
            tensors = {name: file for file in files for name in file.keys()}  # noqa: SIM118
            reader = _Reader(tensors, dtype, packed_from or dtype, ops, device)
            reader.check_names(spec)
            return _read(reader, spec)
        except (SafetensorError, OSError) as error:
            raise UnsupportedModel(f"{model_dir}: weights cannot be read: {error}") from error


def _weight_files(model_dir: Path) -> list[Path]:
    index = model_dir / "model.safetensors.index.json"
    single = model_dir / "model.safetensors"
    if not index.exists():
        if not single.exists():
            raise UnsupportedModel(f"{model_dir}: neither model.safetensors nor {index.name} is there")
        return [single]
    names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    outside = [name for name in names if Path(name).name != name]
    if outside:
        raise UnsupportedModel(f"{index.name}: {outside[0]!r} is not a file name beside it")
    return [model_dir / name for name in names]


def _read(reader: _Reader, spec: ModelSpec) -> Weights:
    embedding = reader.tensor("model.embed_tokens.weight", (spec.vocab, spec.hidden))
    layers = tuple(_read_layer(reader, spec, f"model.layers.{layer}.") for layer in range(spec.n_layers))
    head = "model.embed_tokens.weight" if spec.tied_embeddings else "lm_head.weight"
    return Weights(
        embedding=embedding,
        layers=layers,
        final_norm=reader.tensor("model.norm.weight", (spec.hidden,)),
        head=reader.ops.pack_linear(weight=reader.weight(head, (spec.vocab, spec.hidden)), bias=None),
    )


def _read_layer(reader: _Reader, spec: ModelSpec, prefix: str) -> LayerWeights:
    q, kv = spec.n_heads * spec.head_dim, spec.n_kv_heads * spec.head_dim
    attention, mlp = prefix + "self_attn.", prefix + "mlp."
    norm = (spec.head_dim,)
    return LayerWeights(
        attention_norm=reader.tensor(prefix + "input_layernorm.weight", (spec.hidden,)),
        qkv=reader.linear(
            attention, {"q_proj": q, "k_proj": kv, "v_proj": kv}, in_features=spec.hidden, bias=spec.qkv_bias
        ),
        q_norm=reader.tensor(attention + "q_norm.weight", norm) if spec.qk_norm else None,
        k_norm=reader.tensor(attention + "k_norm.weight", norm) if spec.qk_norm else None,
        o=reader.linear(attention, {"o_proj": spec.hidden}, in_features=q, bias=spec.o_bias),
        mlp_norm=reader.tensor(prefix + "post_attention_layernorm.weight", (spec.hidden,)),
        gate_up=reader.linear(
            mlp,
            {"gate_proj": spec.intermediate, "up_proj": spec.intermediate},
            in_features=spec.hidden,
            bias=spec.mlp_bias,
        ),
        down=reader.linear(mlp, {"down_proj": spec.hidden}, in_features=spec.intermediate, bias=spec.mlp_bias),
    )


class _Reader:
    """Tensors by name, converted and fused."""

    def __init__(
        self,
        files: dict[str, Any],
        dtype: torch.dtype,
        packed_from: torch.dtype,
        ops: Ops,
        device: torch.device | str,
    ) -> None:
        self._files = files
        self._dtype = dtype
        self._packed_from = packed_from
        self._device = device
        self.ops = ops

    def check_names(self, spec: ModelSpec) -> None:
        expected = set(_expected_names(spec))
        present = {name for name in self._files if not _is_redundant(name, spec)}
        for what, names in (("missing", expected - present), ("not known to", present - expected)):
            if names:
                listed = ", ".join(sorted(names)[:MAX_NAMED])
                more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
                raise UnsupportedModel(f"weights {what} {spec.architecture}: {listed}{more}")

    def tensor(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        return self._read(name, shape).to(device=self._device, dtype=self._dtype)

    def weight(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """A linear's, to be packed."""
        return self._read(name, shape).to(device=self._device, dtype=self._packed_from)

    def _read(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        tensor: torch.Tensor = self._files[name].get_tensor(name)
        if tuple(tensor.shape) != shape:
            raise UnsupportedModel(f"{name} has shape {list(tensor.shape)}, config.json says {list(shape)}")
        if not tensor.is_floating_point():
            raise UnsupportedModel(f"{name} is {tensor.dtype}: quantised weights are not served")
        return tensor

    def linear(self, prefix: str, widths: dict[str, int], *, in_features: int, bias: bool) -> PackedLinear:
        """The named linears fused along their outputs."""
        total = sum(widths.values())
        weight = torch.empty(total, in_features, dtype=self._packed_from, device=self._device)
        self._fill(weight, widths, lambda name, width: self.weight(f"{prefix}{name}.weight", (width, in_features)))
        if not bias:
            return self.ops.pack_linear(weight=weight, bias=None)
        vector = torch.empty(total, dtype=self._dtype, device=self._device)
        self._fill(vector, widths, lambda name, width: self.tensor(f"{prefix}{name}.bias", (width,)))
        return self.ops.pack_linear(weight=weight, bias=vector)

    def _fill(self, out: torch.Tensor, widths: dict[str, int], read: Callable[[str, int], torch.Tensor]) -> None:
        start = 0
        for name, width in widths.items():
            out[start : start + width] = read(name, width)
            start += width


def _expected_names(spec: ModelSpec) -> list[str]:
    names = ["model.embed_tokens.weight", "model.norm.weight"]
    if not spec.tied_embeddings:
        names.append("lm_head.weight")
    linears = {
        "self_attn.q_proj": spec.qkv_bias,
        "self_attn.k_proj": spec.qkv_bias,
        "self_attn.v_proj": spec.qkv_bias,
        "self_attn.o_proj": spec.o_bias,
        "mlp.gate_proj": spec.mlp_bias,
        "mlp.up_proj": spec.mlp_bias,
        "mlp.down_proj": spec.mlp_bias,
    }
    norms = ["input_layernorm", "post_attention_layernorm"]
    norms += ["self_attn.q_norm", "self_attn.k_norm"] if spec.qk_norm else []
    for layer in range(spec.n_layers):
        prefix = f"model.layers.{layer}."
        names += [f"{prefix}{name}.weight" for name in (*linears, *norms)]
        names += [f"{prefix}{name}.bias" for name, has_bias in linears.items() if has_bias]
    return names


def _is_redundant(name: str, spec: ModelSpec) -> bool:
    """Tensors that some checkpoints carry and the configuration already determines."""
    return name.endswith("rotary_emb.inv_freq") or (name == "lm_head.weight" and spec.tied_embeddings)
