"""Records what transformers + PEFT answer: the oracle of the equality suite.

    python -m tests.engine.equality.record_reference

One request at a time, float32, greedy, each adapter loaded from its directory by PEFT. Run it again when an adapter,
the prompts or the embedded model change; the suite refuses a recording that no longer fits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from lorikeet_engine.build import digest_of_model
from lorikeet_engine.models.package import resolve_model
from lorikeet_engine.text.tokenizer import Tokenizer
from tests.conftest import EMBEDDED_MODEL, ROOT
from tests.engine.equality.prompts import BASE, N_TOKENS, adapter_dirs, all_prompts

REFERENCE = Path(__file__).with_name("reference_tokens.json")


def oracle(model_dir: Path, adapter_dir: Path | None) -> Any:
    """transformers in float32, with one adapter that PEFT loads."""
    model = AutoModelForCausalLM.from_pretrained(str(model_dir), dtype=torch.float32)
    if adapter_dir is not None:
        model = PeftModel.from_pretrained(model, str(adapter_dir))
    return model.eval()


def weights_digest(adapter_dir: Path) -> str:
    return hashlib.sha256((adapter_dir / "adapter_model.safetensors").read_bytes()).hexdigest()


@torch.inference_mode()
def greedy(model: Any, prompt: Sequence[int], n_tokens: int, eos: int) -> tuple[list[int], float]:
    """The answer, and the smallest lead that a chosen token's logit had over the second best."""
    answer = model.generate(
        input_ids=torch.tensor([prompt]),
        max_new_tokens=n_tokens,
        do_sample=False,
        eos_token_id=eos,
        pad_token_id=eos,
        output_logits=True,
        return_dict_in_generate=True,
    )
    best = torch.cat(answer.logits).topk(2).values
    return answer.sequences[0, len(prompt) :].tolist(), (best[:, 0] - best[:, 1]).min().item()


def record(model_dir: Path) -> dict[str, Any]:
    prompts = all_prompts(Tokenizer(model_dir))
    eos = json.loads((model_dir / "config.json").read_text())["eos_token_id"]
    tokens: dict[str, dict[str, list[list[int]]]] = {kind: {} for kind in prompts}
    leads = []
    for adapter, adapter_dir in [(BASE, None), *adapter_dirs().items()]:
        model = oracle(model_dir, adapter_dir)
        for kind, of_kind in prompts.items():
            answers = [greedy(model, prompt, N_TOKENS[kind], eos) for prompt in of_kind]
            tokens[kind][adapter] = [answer for answer, _ in answers]
            leads += [lead for _, lead in answers]
    return {
        "versions": {name: version(name) for name in ("torch", "transformers", "peft")},
        "model_digest": digest_of_model(model_dir),
        "adapters": {name: weights_digest(path) for name, path in adapter_dirs().items()},
        "prompts": prompts,
        "tokens": tokens,
        "smallest_lead": min(leads),
    }


if __name__ == "__main__":
    recorded = record(resolve_model(EMBEDDED_MODEL, ROOT / "var" / "models"))
    REFERENCE.write_text(json.dumps(recorded, separators=(",", ":")) + "\n")
