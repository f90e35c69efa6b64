"""transformers `generate`, one batch of equal lengths a call; adapters by PEFT's mixed batch (`adapter_names`).

The base model is a second copy without PEFT, so that requests without an adapter do not pay for its wrappers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import peft
import torch
import transformers
from channel import Answer, Ask, Clock, serve
from transformers.generation.streamers import BaseStreamer


class StepClock(BaseStreamer):  # type: ignore[misc]
    """When each step of `generate` handed its tokens over; the first call brings the prompt."""

    def __init__(self) -> None:
        self._clock = Clock()
        self.times: list[float] = []

    def put(self, value: torch.Tensor) -> None:  # noqa: ARG002 (the streamer's signature)
        self.times.append(self._clock())

    def end(self) -> None:
        return


class Transformers:
    """The base model, and the same with every adapter loaded."""

    version = f"{transformers.__version__} + PEFT {peft.__version__}"

    def __init__(self, settings: dict[str, Any]) -> None:
        torch.set_num_threads(settings["threads"])
        self._base = load_model(settings)
        self._adapted = load_adapted(settings)

    @torch.inference_mode()
    def run(self, asks: list[Ask]) -> list[Answer]:
        names = [ask.adapter for ask in asks]
        model, extra = (self._adapted, {"adapter_names": names}) if all(names) else (self._base, {})
        prompts = torch.tensor([ask.prompt for ask in asks])
        n_tokens = asks[0].max_tokens
        steps = StepClock()
        out = model.generate(
            input_ids=prompts,
            attention_mask=torch.ones_like(prompts),
            max_new_tokens=n_tokens,
            min_new_tokens=n_tokens,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
            streamer=steps,
            **extra,
        )
        return [Answer(row[prompts.shape[1] :].tolist(), steps.times[1:]) for row in out]

    def close(self) -> None:
        return


def load_model(settings: dict[str, Any]) -> Any:
    dtype = getattr(torch, settings["dtype"])
    return transformers.AutoModelForCausalLM.from_pretrained(settings["model_dir"], dtype=dtype).eval()


def load_adapted(settings: dict[str, Any]) -> Any:
    """A model with all adapters loaded in its own dtype, where PEFT would keep them in float32."""
    folders: Sequence[Path] = sorted(Path(settings["adapters_dir"]).iterdir())
    model: Any = None
    for folder in folders:
        if model is None:
            model = peft.PeftModel.from_pretrained(
                load_model(settings), str(folder), adapter_name=folder.name, autocast_adapter_dtype=False
            )
        else:
            model.load_adapter(str(folder), adapter_name=folder.name, autocast_adapter_dtype=False)
    return model.to(getattr(torch, settings["dtype"])).eval()


if __name__ == "__main__":
    serve(Transformers)
