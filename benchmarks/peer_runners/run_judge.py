"""How well answers fit the adapter they were asked of, by transformers + PEFT in float32.

    python run_judge.py SETTINGS < ASKED > GAPS

ASKED is a JSON list of [prompt, tokens, adapter]; an empty adapter is the base model. Every token is looked at behind
the prompt and the tokens that its engine chose before it, so a single flip near a tie does not spoil what follows. GAPS
has for every token how far its logit lies below the largest one: 0 where float32 would have chosen the same.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from run_peft import load_adapted


def main() -> None:
    settings = json.loads(sys.argv[1])
    torch.set_num_threads(settings["threads"])
    model = load_adapted(settings)
    asked = json.load(sys.stdin)
    json.dump([gaps_of(model, prompt, tokens, adapter) for prompt, tokens, adapter in asked], sys.stdout)


@torch.inference_mode()
def gaps_of(model: Any, prompt: list[int], tokens: list[int], adapter: str) -> list[float]:
    with speaking(model, adapter):
        ids = torch.tensor([[*prompt, *tokens[:-1]]])
        logits = model(input_ids=ids, logits_to_keep=len(tokens)).logits[0].float()
    chosen = logits.gather(1, torch.tensor(tokens)[:, None]).squeeze(1)
    gaps: list[float] = (logits.amax(1) - chosen).tolist()
    return gaps


@contextmanager
def speaking(model: Any, adapter: str) -> Iterator[None]:
    if adapter:
        model.set_adapter(adapter)
        yield
    else:
        with model.disable_adapter():
            yield


if __name__ == "__main__":
    main()
