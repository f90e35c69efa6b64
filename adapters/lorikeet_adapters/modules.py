"""The module table of a base model: which linears an adapter may touch, and how wide they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# The seven linears of a Llama-family layer, in the order of the arena's head table.
MODULES = (
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)


@dataclass(frozen=True, slots=True)
class Linear:
    """Width of one linear module; a LoRA pair on it is A[rank, in_features], B[out_features, rank]."""

    in_features: int
    out_features: int


@dataclass(frozen=True, slots=True)
class ModuleTable:
    """Every linear of one base model, by name inside a layer; the keys are `MODULES`.

    Attributes:
        norms: modules inside a layer that not every family has, and that cannot have an adapter.
        has_default_targets: whether PEFT chooses modules of this family by itself when a configuration names none.
    """

    base_model: str
    n_layers: int
    linears: Mapping[str, Linear]
    norms: tuple[str, ...] = ()
    has_default_targets: bool = True
