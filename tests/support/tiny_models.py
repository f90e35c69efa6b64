"""Random models of two layers, one for each architecture and trait that the decoder covers, and adapters for them.

Made and saved by transformers and PEFT, which are also what the tests compare with.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
    SmolLM3Config,
)

from lorikeet_adapters.image import AdapterImage, BaseLinears, pack_image
from lorikeet_adapters.modules import ModuleTable
from tests.support.lora_files import normalise_folder

VOCAB = 128
SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
SLIDING = {"use_sliding_window": True, "sliding_window": 12, "max_window_layers": 1}

CONFIGS: dict[str, Any] = {
    "llama": LlamaConfig(**SHAPE),
    "llama_tied_biased": LlamaConfig(**SHAPE, tie_word_embeddings=True, attention_bias=True, mlp_bias=True),
    "llama_llama3_rope": LlamaConfig(**SHAPE, rope_parameters=LLAMA3_ROPE),
    "llama_linear_rope": LlamaConfig(
        **SHAPE, rope_parameters={"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0}
    ),
    "llama_wide_heads": LlamaConfig(**SHAPE, head_dim=32),
    "mistral_full": MistralConfig(**SHAPE, sliding_window=None),
    "mistral_window": MistralConfig(**SHAPE, sliding_window=12),
    "qwen2": Qwen2Config(**SHAPE),
    "qwen2_window_in_upper_layers": Qwen2Config(**SHAPE, **SLIDING),
    "qwen3": Qwen3Config(**SHAPE, head_dim=32),
    "smollm3": SmolLM3Config(**SHAPE, no_rope_layers=[1, 0]),
}

# Scores of the random models are spread like a trained model's, and nothing is left at its neutral initial value:
# a bias of zero or a norm of one would hide that it is not applied.
PERTURBATION = 0.1


def save_model(name: str, directory: Path, *, max_shard_size: str = "1GB") -> Path:
    torch.manual_seed(5)
    model = AutoModelForCausalLM.from_config(CONFIGS[name]).float()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += PERTURBATION * torch.randn_like(parameter)
    model.save_pretrained(directory, max_shard_size=max_shard_size)
    return directory


def load_oracle(directory: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()


@torch.no_grad()
def oracle_logits(model: Any, tokens: list[int]) -> torch.Tensor:
    """Float32 logits after every token."""
    logits: torch.Tensor = model(torch.tensor([tokens])).logits[0]
    return logits


@torch.no_grad()
def save_adapter(model_dir: Path, directory: Path, *, seed: int = 1, strength: float = 0.2, **options: Any) -> Path:
    """An adapter of random numbers, saved by PEFT.

    Nothing is left at the value it starts with: a B or a bias of zero, or a magnitude that is just the length of its
    row, would hide that it is not applied.
    """
    torch.manual_seed(seed)
    model = get_peft_model(load_oracle(model_dir), LoraConfig(task_type="CAUSAL_LM", **options))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.normal_(std=strength)
        elif "lora_magnitude_vector" in name:
            parameter *= 1.0 + 1.5 * strength * torch.randn_like(parameter)
    model.save_pretrained(directory)
    return directory


def load_adapted_oracle(model_dir: Path, adapter_dir: Path) -> Any:
    return PeftModel.from_pretrained(load_oracle(model_dir), adapter_dir).eval()


def pack_adapter(
    adapter_dir: Path, table: ModuleTable, dtype: torch.dtype, base: BaseLinears | None = None
) -> AdapterImage:
    _, digest, data = normalise_folder(adapter_dir, table)
    assert hashlib.sha256(data).hexdigest() == digest
    return pack_image(data, digest=digest, table=table, dtype=dtype, base=base)
