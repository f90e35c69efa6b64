"""Trains the demo adapters with peft on CPU: `python -m lorikeet_adapters.demo.train --model DIR --out DIR`.

Writes one PEFT directory for each style, with a training record beside the weights. The record's counts are
measured on the adapter as reloaded from the directory, so they speak of what ships.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from lorikeet_adapters.demo.evaluate import MAX_NEW_TOKENS, count_holding, greedy_answers, prompt_ids
from lorikeet_adapters.demo.pairs import Pair, file_sha256, read_pairs
from lorikeet_adapters.demo.recipes import RECIPES, Recipe
from lorikeet_adapters.demo.styles import BASE_MODEL, HELD_OUT_PROMPTS, STYLES, Style, style_named, texts_path

LOG = logging.getLogger("lorikeet_adapters.demo.train")
WEIGHTS_FILE = "model.safetensors"
IGNORED_LABEL = -100


@dataclass(frozen=True)
class TrainingRecord:
    """What made an adapter and how it did; lies beside the weights as training.json."""

    style: str
    base_model: str
    base_weights_file: str
    base_weights_sha256: str
    texts_sha256: str
    pairs: int
    recipe: Recipe
    autocast: str
    final_loss: float
    held_out_prompts: int
    max_new_tokens: int
    held_out_passing_with_adapter: int
    held_out_passing_with_base: int
    answers_with_adapter: dict[str, str]
    versions: dict[str, str]


def encode(tokenizer: Any, pair: Pair) -> tuple[list[int], list[int]]:
    """Token ids and labels; only the answer and the token that ends the turn are learnt."""
    prompt = prompt_ids(tokenizer, pair.prompt)
    answer = [*tokenizer(pair.answer, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    return prompt + answer, [IGNORED_LABEL] * len(prompt) + answer


def batches(rows: list[tuple[list[int], list[int]]], recipe: Recipe, pad: int) -> Iterator[tuple[torch.Tensor, ...]]:
    """Right-padded (ids, mask, labels), shuffled anew for each pass over the texts, without end."""
    order = random.Random(recipe.seed)
    queue: list[int] = []
    while True:
        while len(queue) < recipe.batch:
            queue += order.sample(range(len(rows)), len(rows))
        chosen = [rows[index] for index in queue[: recipe.batch]]
        del queue[: recipe.batch]
        width = max(len(ids) for ids, _ in chosen)
        yield (
            torch.tensor([ids + [pad] * (width - len(ids)) for ids, _ in chosen]),
            torch.tensor([[1] * len(ids) + [0] * (width - len(ids)) for ids, _ in chosen]),
            torch.tensor([labels + [IGNORED_LABEL] * (width - len(labels)) for _, labels in chosen]),
        )


def answer_loss(model: Any, ids: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of the answer tokens; the vocabulary head runs on their positions only."""
    causal = model.get_base_model()
    targets = labels[:, 1:]
    wanted = targets != IGNORED_LABEL
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = causal.model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        logits = causal.lm_head(hidden[:, :-1][wanted])
    return torch.nn.functional.cross_entropy(logits.float(), targets[wanted])


def learning_rate_factor(step: int, recipe: Recipe) -> float:
    """Linear warm-up, then linear decay to a twentieth."""
    if step < recipe.warmup_steps:
        return (step + 1) / recipe.warmup_steps
    return max(0.05, (recipe.steps - step) / (recipe.steps - recipe.warmup_steps))


def fit(model: Any, rows: list[tuple[list[int], list[int]]], recipe: Recipe, pad: int) -> float:
    """Trains the adapter's weights in place; returns the mean loss of the last tenth of the steps."""
    weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=recipe.learning_rate, weight_decay=0.0)
    losses: list[float] = []
    model.train()
    for step, batch in zip(range(recipe.steps), batches(rows, recipe, pad), strict=False):
        for group in optimizer.param_groups:
            group["lr"] = recipe.learning_rate * learning_rate_factor(step, recipe)
        loss = answer_loss(model, *batch)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        losses.append(loss.item())
        if step % 10 == 0:
            LOG.info("step %d of %d, loss %.3f", step, recipe.steps, losses[-1])
    tail = losses[-max(1, recipe.steps // 10) :]
    return sum(tail) / len(tail)


def train_style(style: Style, base: Any, tokenizer: Any, out: Path) -> tuple[float, Any]:
    """Trains one adapter, saves it under `out`, and returns the final loss and the base model without it."""
    recipe = RECIPES[style.name]
    torch.manual_seed(recipe.seed)
    config = LoraConfig(
        r=recipe.rank,
        lora_alpha=recipe.alpha,
        target_modules=list(recipe.target_modules),
        layers_to_transform=None if recipe.layers is None else list(recipe.layers),
        task_type="CAUSAL_LM",
    )
    model = get_peft_model(base, config)
    rows = [encode(tokenizer, pair) for pair in read_pairs(texts_path(style.name))]
    loss = fit(model, rows, recipe, tokenizer.pad_token_id)
    # peft wrote down the directory of this machine that the base came from.
    model.peft_config["default"].base_model_name_or_path = BASE_MODEL
    model.save_pretrained(out, save_embedding_layers=False)
    (out / "README.md").unlink(missing_ok=True)
    return loss, model.unload()


def write_record(style: Style, out: Path, base: Any, tokenizer: Any, model_dir: Path, loss: float) -> Any:
    """Reloads the saved adapter, counts what it and the base model pass, and writes training.json."""
    plain = greedy_answers(base, tokenizer, HELD_OUT_PROMPTS)
    model = PeftModel.from_pretrained(base, out)
    styled = greedy_answers(model, tokenizer, HELD_OUT_PROMPTS)
    record = TrainingRecord(
        style=style.name,
        base_model=BASE_MODEL,
        base_weights_file=WEIGHTS_FILE,
        base_weights_sha256=file_sha256(model_dir / WEIGHTS_FILE),
        texts_sha256=file_sha256(texts_path(style.name)),
        pairs=len(read_pairs(texts_path(style.name))),
        recipe=RECIPES[style.name],
        autocast="bfloat16",
        final_loss=round(loss, 4),
        held_out_prompts=len(HELD_OUT_PROMPTS),
        max_new_tokens=MAX_NEW_TOKENS,
        held_out_passing_with_adapter=count_holding(style, styled),
        held_out_passing_with_base=count_holding(style, plain),
        answers_with_adapter=dict(zip(HELD_OUT_PROMPTS, styled, strict=True)),
        versions={name: version(name) for name in ("torch", "peft", "transformers")},
    )
    text = json.dumps(asdict(record), indent=2, ensure_ascii=False)
    (out / "training.json").write_text(text + "\n", encoding="utf-8")
    LOG.info(
        "%s: %d of %d with the adapter, %d with the base model",
        style.name,
        record.held_out_passing_with_adapter,
        record.held_out_prompts,
        record.held_out_passing_with_base,
    )
    return model.unload()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="Hugging Face directory of the base model")
    parser.add_argument("--out", type=Path, required=True, help="folder that receives one PEFT directory per style")
    parser.add_argument("--style", choices=[style.name for style in STYLES], help="train this one only")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    base: Any = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32)
    for style in [style_named(arguments.style)] if arguments.style else STYLES:
        started = time.monotonic()
        out = arguments.out / style.name
        loss, base = train_style(style, base, tokenizer, out)
        LOG.info("%s: trained in %.0f s, final loss %.3f", style.name, time.monotonic() - started, loss)
        base = write_record(style, out, base, tokenizer, arguments.model, loss)


if __name__ == "__main__":
    main()
