"""What of a layer is more than one operation: a projection with its adapters, and rotary angles."""

from __future__ import annotations

import math

import torch

from lorikeet_engine.lora.arena import LoraArena
from lorikeet_engine.model_spec import ModelSpec
from lorikeet_engine.models.inputs import StepInputs
from lorikeet_engine.ops.interface import Ops, PackedLinear


class Projection:
    """A fused base linear and the place where adapters add to it."""

    def __init__(
        self, *, ops: Ops, linear: PackedLinear, arena: LoraArena, layer: int, modules: tuple[int, ...]
    ) -> None:
        self._ops = ops
        self._linear = linear
        self._arena = arena
        self._layer = layer
        self._site = arena.site(modules)

    def forward(self, x: torch.Tensor, step: StepInputs) -> torch.Tensor:
        out = self._ops.linear(x=x, linear=self._linear)
        if step.lora is not None:
            self._ops.add_lora(
                out=out,
                x=x,
                arena=self._arena.storage,
                batch=step.lora,
                layer=self._layer,
                site=self._site,
                base_bias=self._linear.bias,
            )
        return out


def rotary_table(spec: ModelSpec, max_positions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin of every position, each float32 [positions, D/2], as transformers computes them."""
    angles = torch.outer(torch.arange(max_positions, dtype=torch.float32), inverse_frequencies(spec))
    return angles.cos(), angles.sin()


def inverse_frequencies(spec: ModelSpec) -> torch.Tensor:
    """Float32 [D/2]; the order of operations follows transformers, since a last bit grows with the position."""
    rope, width = spec.rope, spec.head_dim
    exponents = torch.arange(0, width, 2, dtype=torch.int64).float() / width
    plain: torch.Tensor = 1.0 / (rope["rope_theta"] ** exponents)
    match rope["rope_type"]:
        case "linear":
            return plain / float(rope["factor"])
        case "llama3":
            return _llama3_frequencies(plain, rope)
        case _:
            return plain


def _llama3_frequencies(plain: torch.Tensor, rope: dict[str, float]) -> torch.Tensor:
    """Long wavelengths are divided by the factor, short ones kept, those between interpolated."""
    factor, low, high = rope["factor"], rope["low_freq_factor"], rope["high_freq_factor"]
    trained = rope["original_max_position_embeddings"]
    wavelengths = 2 * math.pi / plain
    scaled = torch.where(wavelengths > trained / low, plain / factor, plain)
    smooth = (trained / wavelengths - low) / (high - low)
    between = (1 - smooth) * scaled / factor + smooth * scaled
    is_between = ~(wavelengths < trained / high) & ~(wavelengths > trained / low)
    return torch.where(is_between, between, scaled)
