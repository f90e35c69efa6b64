"""What transformers and PEFT say in float32: the meaning that an adapter's author gave it.

PEFT computes with the configuration as it was uploaded and the tensors as they were uploaded, both respelled for the
served model: the author's may have had other names for the same modules, and shards are read as one, since PEFT itself
passes over names that other libraries write.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from peft import PeftConfig, PeftModel, set_peft_model_state_dict
from safetensors import safe_open
from transformers import AutoModelForCausalLM

from lorikeet_adapters.config.patterns import limited_time
from lorikeet_adapters.errors import AdapterRejected, quoted
from lorikeet_adapters.files import CONFIG_FILE, INDEX_FILE, is_adapter_file, weight_files
from lorikeet_adapters.modules import ModuleTable
from lorikeet_adapters.rules.names import NamedTensor, Part, name_tensors
from lorikeet_adapters.rules.whole_model import SERVED_PREFIX, WholeModel
from lorikeet_adapters.weights import open_files, read_index_bytes, read_tensors
from lorikeet_engine.certification.compared.intention import spell_out


class PeftOracle:
    """The base model, kept; adapters come and go."""

    def __init__(self, model_dir: Path, table: ModuleTable) -> None:
        self._model_dir, self._table = model_dir, table
        self._base: Any = None

    def logits(self, folder: Path, texts: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        """Float32 logits after every token of every text, with the adapter that was uploaded as `folder`.

        Raises:
            AdapterRejected: PEFT does not load it.
        """
        weights = _Weights(folder)
        try:
            config, model = self._wrapped(folder, weights)
        except (ValueError, TypeError) as error:
            self._base = None  # PEFT may have changed a part of it
            raise _not_loaded(error) from None
        try:
            self._load(model, config, weights)
            model.eval()
            return [self._run(model, text) for text in texts]
        finally:
            self._base = model.unload()

    def _wrapped(self, folder: Path, weights: _Weights) -> tuple[Any, Any]:
        """The configuration as PEFT gets it, and the base model with adapters that are empty yet."""
        if self._base is None:
            self._base = AutoModelForCausalLM.from_pretrained(
                self._model_dir, dtype=torch.float32, attn_implementation="eager", local_files_only=True
            ).eval()
        config: Any = PeftConfig.from_pretrained(str(folder))
        config.inference_mode = True
        # True and false decide what a targeted module without tensors does. By any name, it changes nothing; some
        # of them would be computed from data that is not at hand.
        if isinstance(config.init_lora_weights, str):
            config.init_lora_weights = True
        with limited_time():
            spell_out(config, self._base, WholeModel(weights.prefix, self._table))
        return config, PeftModel(self._base, config)

    def _load(self, model: Any, config: Any, weights: _Weights) -> None:
        try:
            loaded = set_peft_model_state_dict(model, weights.state())
        except RuntimeError as error:
            if "size mismatch" not in str(error):
                raise
            raise _not_loaded(error) from None
        missing = [name for name in loaded.missing_keys if "lora_" in name]
        if loaded.unexpected_keys:
            raise _not_loaded(f"no place for {len(loaded.unexpected_keys)} tensors, {loaded.unexpected_keys[0]}")
        if missing and not config.init_lora_weights:
            raise _not_loaded(f"init_lora_weights: false, and {len(missing)} tensors are missing, {missing[0]}")

    @torch.inference_mode()
    def _run(self, model: Any, text: Sequence[int]) -> torch.Tensor:
        logits: torch.Tensor = model(input_ids=torch.tensor([list(text)]), use_cache=False).logits[0]
        return logits


class _Weights:
    """The uploaded tensors, which all lie under one prefix."""

    def __init__(self, folder: Path) -> None:
        names = [path.name for path in folder.iterdir() if is_adapter_file(path.name)]
        self._paths = [folder / name for name in weight_files(names)]
        index = read_index_bytes(folder / INDEX_FILE) if INDEX_FILE in names else None
        with open_files(self._paths) as files:
            self._named = name_tensors(read_tensors(files, index))
        first = self._named[0]
        self.prefix = first.path.removesuffix(f"layers.{first.layer}.{first.module}")

    def state(self) -> dict[str, torch.Tensor]:
        """All of them under the names that PEFT saves them with for the served model."""
        state: dict[str, torch.Tensor] = {}
        for number, path in enumerate(self._paths):
            with safe_open(path, framework="pt") as file:
                for tensor in self._named:
                    if tensor.tensor.file == number:
                        state[_peft_name(tensor)] = file.get_tensor(tensor.tensor.name)
        return state


def _peft_name(named: NamedTensor) -> str:
    suffix = ".weight" if named.part in (Part.A, Part.B) else ""
    return f"base_model.model.{SERVED_PREFIX}layers.{named.layer}.{named.module}.{named.part.value}{suffix}"


def _not_loaded(reason: object) -> AdapterRejected:
    return AdapterRejected(
        "certificate_failed",
        subject=CONFIG_FILE,
        found=f"an adapter that PEFT does not load: {quoted(str(reason))}",
        allowed="adapters that PEFT loads",
    )
