"""A real model in miniature, and real PEFT around it: the oracle of these tests."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from tests.support import lora_files

SavePeft = Callable[..., Any]


@pytest.fixture(scope="session")
def tiny_llama() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=lora_files.HIDDEN,
        intermediate_size=lora_files.INTERMEDIATE,
        num_hidden_layers=lora_files.N_LAYERS,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=lora_files.KV,
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture
def save_peft(tiny_llama: LlamaForCausalLM, tmp_path: Path) -> SavePeft:
    """Train nothing, give every matrix random values, save; returns the model PEFT loads back, and its folder.

    The loaded model is the oracle, not the one that was saved: saving sorts the keys of rank_pattern and
    alpha_pattern, and the first key that matches wins.
    """

    def save(*, seed: int = 1, dtype: torch.dtype = torch.float32, **options: Any) -> tuple[Any, Path]:
        model = get_peft_model(copy.deepcopy(tiny_llama), LoraConfig(**options)).eval()
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if ".lora_" in name:
                    parameter.copy_(torch.randn(parameter.shape, generator=generator).to(dtype))
                    parameter.data = parameter.data.to(dtype)
        folder = tmp_path / f"peft-{len(list(tmp_path.iterdir()))}"
        model.save_pretrained(folder)
        return PeftModel.from_pretrained(copy.deepcopy(tiny_llama), folder).eval(), folder

    return save
