"""What transformers and PEFT say in float32: the meaning that an adapter's author gave it.

PEFT reads the configuration as it was uploaded. Of the tensors only the names are brought into PEFT's own spelling, and
shards are read as one, since PEFT itself passes over names that other libraries write.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from peft import PeftConfig, PeftModel, set_peft_model_state_dict
from safetensors import safe_open
from transformers import AutoModelForCausalLM

from lorikeet_adapters.files import INDEX_FILE, is_adapter_file, weight_files
from lorikeet_adapters.rules.names import NamedTensor, Part, name_tensors
from lorikeet_adapters.weights import open_files, read_index_bytes, read_tensors


class PeftOracle:
    """The base model, kept; adapters come and go."""

    def __init__(self, model_dir: Path) -> None:
        self._base: Any = AutoModelForCausalLM.from_pretrained(
            model_dir, dtype=torch.float32, attn_implementation="eager", local_files_only=True
        ).eval()

    def logits(self, folder: Path, texts: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        """Float32 logits after every token of every text, with the adapter that was uploaded as `folder`."""
        config = PeftConfig.from_pretrained(str(folder))
        config.inference_mode = True
        # How matrices begin before training; with the default, a targeted module without tensors changes nothing.
        config.init_lora_weights = True
        model: Any = PeftModel(self._base, config)
        try:
            loaded = set_peft_model_state_dict(model, _state(folder))
            if loaded.unexpected_keys:
                raise ValueError(f"PEFT has no place for {len(loaded.unexpected_keys)} of the tensors")
            model.eval()
            return [self._run(model, text) for text in texts]
        finally:
            self._base = model.unload()

    @torch.inference_mode()
    def _run(self, model: Any, text: Sequence[int]) -> torch.Tensor:
        logits: torch.Tensor = model(input_ids=torch.tensor([list(text)]), use_cache=False).logits[0]
        return logits


def _state(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors under the names that PEFT saves them with."""
    names = [path.name for path in folder.iterdir() if is_adapter_file(path.name)]
    paths = [folder / name for name in weight_files(names)]
    index = read_index_bytes(folder / INDEX_FILE) if INDEX_FILE in names else None
    with open_files(paths) as files:
        named = name_tensors(read_tensors(files, index))
    state: dict[str, torch.Tensor] = {}
    for number, path in enumerate(paths):
        with safe_open(path, framework="pt") as file:
            for tensor in named:
                if tensor.tensor.file == number:
                    state[_peft_name(tensor)] = file.get_tensor(tensor.tensor.name)
    return state


def _peft_name(named: NamedTensor) -> str:
    suffix = ".weight" if named.part in (Part.A, Part.B) else ""
    return f"base_model.model.model.layers.{named.layer}.{named.module}.{named.part.value}{suffix}"
