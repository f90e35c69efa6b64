"""The shape of a base model, read from its transformers `config.json` without torch.

Covers the Llama family by configuration; anything else is refused with the list of what is covered.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lorikeet_adapters.modules import Linear, ModuleTable
from lorikeet_engine.errors import UnsupportedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What an architecture's name says and its config leaves unsaid; defaults are those of transformers.

    Attributes:
        qkv_bias: None = as `attention_bias` says.
        has_default_targets: PEFT knows which modules to adapt when an adapter's configuration names none.
        window: "never", "always" (all layers, when `sliding_window` is set) or "opt-in" (`use_sliding_window`).
    """

    qkv_bias: bool | None = None
    qk_norm: bool = False
    window: str = "never"
    no_rope_interval: int = 0
    tied_embeddings: bool = False
    has_default_targets: bool = True


FAMILY = {
    "LlamaForCausalLM": Traits(),
    "MistralForCausalLM": Traits(window="always"),
    "Qwen2ForCausalLM": Traits(qkv_bias=True, window="opt-in"),
    "Qwen3ForCausalLM": Traits(qk_norm=True, window="opt-in"),
    "SmolLM3ForCausalLM": Traits(window="opt-in", no_rope_interval=4, tied_embeddings=True, has_default_targets=False),
}
QWEN_FULL_ATTENTION_LAYERS = 28  # transformers' default of max_window_layers


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Dimensions of a decoder of the Llama family.

    Attributes:
        rope: transformers' rope parameters, `rope_type` and `rope_theta` among them.
        rope_layers: per layer, whether rotary embedding applies (SmolLM3 leaves it out of every fourth).
        sliding_window: attention window in tokens of each layer, 0 = full.
    """

    architecture: str
    n_layers: int
    hidden: int
    intermediate: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    vocab: int
    max_positions: int
    rms_norm_eps: float
    tied_embeddings: bool
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    qk_norm: bool
    eos_token_ids: tuple[int, ...]
    rope: dict[str, Any] = field(hash=False)
    rope_layers: tuple[bool, ...]
    sliding_window: tuple[int, ...]

    def module_table(self, base_model: str) -> ModuleTable:
        """Every linear module that an adapter may touch, with its (in, out) width."""
        q, kv = self.n_heads * self.head_dim, self.n_kv_heads * self.head_dim
        return ModuleTable(
            base_model=base_model,
            n_layers=self.n_layers,
            linears={
                "self_attn.q_proj": Linear(self.hidden, q),
                "self_attn.k_proj": Linear(self.hidden, kv),
                "self_attn.v_proj": Linear(self.hidden, kv),
                "self_attn.o_proj": Linear(q, self.hidden),
                "mlp.gate_proj": Linear(self.hidden, self.intermediate),
                "mlp.up_proj": Linear(self.hidden, self.intermediate),
                "mlp.down_proj": Linear(self.intermediate, self.hidden),
            },
            norms=("self_attn.q_norm", "self_attn.k_norm") if self.qk_norm else (),
            has_default_targets=FAMILY[self.architecture].has_default_targets,
        )


def load_model_spec(model_dir: Path) -> ModelSpec:
    """Read `config.json` (and the eos ids of `generation_config.json`) of a local model directory.

    Raises:
        UnsupportedModel: the architecture or one of its options is not covered.
    """
    config = json.loads((model_dir / "config.json").read_text())
    generation_path = model_dir / "generation_config.json"
    generation = json.loads(generation_path.read_text()) if generation_path.exists() else {}
    return spec_from_config(config, eos=generation.get("eos_token_id", config.get("eos_token_id")))


def spec_from_config(config: dict[str, Any], *, eos: int | list[int] | None) -> ModelSpec:
    architecture = (config.get("architectures") or ["?"])[0]
    if architecture not in FAMILY:
        raise UnsupportedModel(f"architecture {architecture} is not covered; covered: {', '.join(sorted(FAMILY))}")
    if config.get("quantization_config"):
        raise UnsupportedModel("quantization_config: quantised weights are not served; give the plain checkpoint")
    if config.get("hidden_act", "silu") != "silu":
        raise UnsupportedModel(f"hidden_act {config['hidden_act']!r} is not covered; covered: 'silu'")
    traits = FAMILY[architecture]
    n_layers, n_heads = config["num_hidden_layers"], config["num_attention_heads"]
    return ModelSpec(
        architecture=architecture,
        n_layers=n_layers,
        hidden=config["hidden_size"],
        intermediate=config["intermediate_size"],
        n_heads=n_heads,
        n_kv_heads=config.get("num_key_value_heads") or n_heads,
        head_dim=config.get("head_dim") or config["hidden_size"] // n_heads,
        vocab=config["vocab_size"],
        max_positions=config["max_position_embeddings"],
        rms_norm_eps=config["rms_norm_eps"],
        tied_embeddings=bool(config.get("tie_word_embeddings", traits.tied_embeddings)),
        qkv_bias=bool(config.get("attention_bias", False)) if traits.qkv_bias is None else traits.qkv_bias,
        o_bias=bool(config.get("attention_bias", False)) and traits.qkv_bias is None,
        mlp_bias=bool(config.get("mlp_bias", False)),
        qk_norm=traits.qk_norm,
        eos_token_ids=tuple([eos] if isinstance(eos, int) else eos or ()),
        rope=_rope(config),
        rope_layers=_rope_layers(config, traits, n_layers),
        sliding_window=_sliding_window(config, traits, n_layers),
    )


def _rope(config: dict[str, Any]) -> dict[str, Any]:
    """Rope parameters in transformers 5 form; older configs keep theta and scaling apart."""
    rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    rope.setdefault("rope_theta", config.get("rope_theta", 10000.0))
    rope["rope_type"] = rope.pop("type", None) or rope.get("rope_type") or "default"
    if rope.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0)) != 1.0:
        raise UnsupportedModel("partial_rotary_factor other than 1 is not covered")
    if rope["rope_type"] not in ("default", "linear", "llama3"):
        raise UnsupportedModel(f"rope_type {rope['rope_type']!r} is not covered; covered: default, linear, llama3")
    return rope


def _rope_layers(config: dict[str, Any], traits: Traits, n_layers: int) -> tuple[bool, ...]:
    """`no_rope_layers` holds 1 where a layer *has* rotary embedding; without it, every n-th layer has none."""
    if config.get("no_rope_layers"):
        return tuple(bool(has_rope) for has_rope in config["no_rope_layers"])
    interval = config.get("no_rope_layer_interval", traits.no_rope_interval) if traits.no_rope_interval else 0
    return tuple(not interval or (layer + 1) % interval != 0 for layer in range(n_layers))


def _sliding_window(config: dict[str, Any], traits: Traits, n_layers: int) -> tuple[int, ...]:
    window = config.get("sliding_window") or 0
    if traits.window == "never" or (traits.window == "opt-in" and not config.get("use_sliding_window", False)):
        window = 0
    if config.get("layer_types"):
        return tuple(window if kind == "sliding_attention" else 0 for kind in config["layer_types"])
    first = config.get("max_window_layers", QWEN_FULL_ATTENTION_LAYERS) if traits.window == "opt-in" else 0
    return tuple(window if layer >= first else 0 for layer in range(n_layers))
