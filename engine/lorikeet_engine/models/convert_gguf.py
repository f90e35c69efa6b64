"""One half of a conversion from GGUF to a Hugging Face directory: `weights` or `tokenizer`.

A program for `models.package`, which runs both halves at once: transformers takes seconds to parse the file's token
lists, twice. Weights are dequantised to float32, exactly what transformers computes from the file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from lorikeet_engine.model_spec import spec_from_config

# Left by the loader: the file is not quantised any more, and the name is whatever its author typed.
STALE_FIELDS = ("quantization_config", "_name_or_path", "_model_name_or_path")


def convert_tokenizer(gguf: Path, out: Path) -> None:
    """Write tokenizer.json, its configuration and the chat template."""
    AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name).save_pretrained(str(out))


def convert_weights(gguf: Path, out: Path) -> None:
    """Write model.safetensors, config.json and generation_config.json."""
    model = AutoModelForCausalLM.from_pretrained(str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32)
    config = {name: value for name, value in model.config.to_dict().items() if name not in STALE_FIELDS}
    config["architectures"] = [type(model).__name__]
    spec = spec_from_config(config, eos=model.generation_config.eos_token_id)
    tensors = model.state_dict()
    if spec.tied_embeddings:
        tensors.pop("lm_head.weight")
    # transformers refuses save_pretrained for a model that came from a GGUF, though nothing of it is quantised now.
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()}, out / "model.safetensors", {"format": "pt"}
    )
    (out / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    model.generation_config.save_pretrained(str(out))


def main(part: str, gguf: str, out: str) -> None:
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    convert = {"weights": convert_weights, "tokenizer": convert_tokenizer}[part]
    convert(Path(gguf), Path(out))


if __name__ == "__main__":
    main(*sys.argv[1:])
