"""What 8-bit weights cost in quality and gain in time on this CPU: the engine with `quantization` int8 and without.

    python benchmarks/int8.py MODEL_DIR [--quick] [--json FILE]

Quality is measured through the engine's own runner: a text of the repository, each token after all before it (one row
of a step for each token), and 16 questions answered greedily. What bfloat16 alone changes against float32 stands
beside it, for scale. Time is the processor time of a decode step on one thread, the two engines in turn.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

import torch
from figures import Figure, arguments, at_most, present

from lorikeet_engine.build import Engine, build_engine
from lorikeet_engine.config import MIB, EngineConfig
from lorikeet_engine.execution.runner import ModelRunner
from lorikeet_engine.scheduling.plan import Phase, PlanRow, SamplingParams, StepPlan
from lorikeet_engine.text.tokenizer import Tokenizer

TEXT = Path(__file__).parent / "texts" / "ferry.txt"
BLOCK = 16
ROWS = 64  # tokens of the text in one step
CONTEXT = 256  # tokens before each row of a timed step
QUICK_TEXT = 512
ANSWER = 64
TIMED_ROWS = (1, 8, 16)
WARM_UP = 3
LARGEST_LOSS = 1.02  # perplexity with int8 over perplexity without
QUESTIONS = (
    "What is the capital of France?",
    "Why is the sky blue?",
    "How do I make tea?",
    "Name three fruits that are red.",
    "What should I wear when it rains?",
    "Explain what a library is to a child.",
    "Which is heavier, a kilogram of feathers or a kilogram of iron?",
    "Write two sentences about the sea.",
    "How many days are there in a leap year?",
    "What does a ferry do?",
    "Give me a short recipe for potato soup.",
    "Who wrote Hamlet?",
    "How does a bicycle stay upright?",
    "List the planets of the solar system.",
    "What is the difference between a lake and a river?",
    "Suggest a name for a bridge.",
)


@dataclass(frozen=True)
class Forced:
    """The text as a model sees it: the loss of each token and the token it would have chosen."""

    losses: list[float]
    choices: list[int]

    @property
    def perplexity(self) -> float:
        return math.exp(mean(self.losses))


@dataclass(frozen=True)
class Measured:
    """One engine's quality."""

    weights_bytes: int
    forced: Forced
    answers: list[list[int]]


def open_engine(model_dir: Path, dtype: str, quantization: str) -> Engine:
    config = EngineConfig(
        model_dir=model_dir,
        model_name="base",
        store_url=str(model_dir),
        endpoint="ipc://unused",
        dtype=dtype,
        quantization=quantization,
        threads=1,
        block_size=BLOCK,
        max_model_len=4096,
        max_num_seqs=ROWS,
        kv_cache_bytes=320 * MIB,
        adapter_pool_bytes=16 * MIB,
    )
    return build_engine(config)


def row(name: str, tokens: Sequence[int], *, start: int, blocks: range, samples: bool = True) -> PlanRow:
    phase = Phase.DECODE if len(tokens) == 1 else Phase.PREFILL
    return PlanRow(name, phase, tuple(tokens), start, tuple(blocks), None, -1, samples, SamplingParams(), 0)


def blocks_of(index: int, n_tokens: int) -> range:
    """The pages of sequence `index` when all sequences have so many tokens; block 0 is nobody's."""
    per_row = -(-n_tokens // BLOCK)
    return range(1 + index * per_row, 1 + (index + 1) * per_row)


def read_text(runner: ModelRunner, tokens: Sequence[int]) -> Forced:
    """Each token but the first, predicted from all before it: a step's rows are consecutive tokens of one sequence."""
    blocks = blocks_of(0, len(tokens))
    losses: list[float] = []
    choices: list[int] = []
    for first in range(0, len(tokens) - 1, ROWS):
        positions = range(first, min(first + ROWS, len(tokens) - 1))
        rows = tuple(row(f"t{i}", tokens[i : i + 1], start=i, blocks=blocks) for i in positions)
        logits = runner.logits(StepPlan(first, rows))
        targets = torch.tensor([tokens[i + 1] for i in positions])
        losses += torch.nn.functional.cross_entropy(logits, targets, reduction="none").tolist()
        choices += logits.argmax(-1).tolist()
    return Forced(losses, choices)


def answer(runner: ModelRunner, prompts: Sequence[Sequence[int]], n_tokens: int) -> list[list[int]]:
    """Greedy answers of `n_tokens` tokens, whatever they say; prompts one by one, then all rows together."""
    longest = max(map(len, prompts)) + n_tokens
    answers: list[list[int]] = []
    for index, prompt in enumerate(prompts):
        rows = (row(str(index), prompt, start=0, blocks=blocks_of(index, longest)),)
        answers.append([runner.execute(StepPlan(index, rows)).sampled[str(index)]])
    for step in range(n_tokens - 1):
        rows = tuple(
            row(str(index), answers[index][-1:], start=len(prompt) + step, blocks=blocks_of(index, longest))
            for index, prompt in enumerate(prompts)
        )
        sampled = runner.execute(StepPlan(step, rows)).sampled
        for index, tokens in enumerate(answers):
            tokens.append(sampled[str(index)])
    return answers


def measure(engine: Engine, text: Sequence[int], prompts: Sequence[Sequence[int]]) -> Measured:
    forced = read_text(engine.runner, text)
    return Measured(engine.budget.weights_bytes, forced, answer(engine.runner, prompts, ANSWER))


def agreement(name: str, one: Measured, other: Measured) -> Iterator[Figure]:
    same = mean(a == b for a, b in zip(one.forced.choices, other.forced.choices, strict=True))
    prefixes = [common_prefix(a, b) for a, b in zip(one.answers, other.answers, strict=True)]
    yield Figure(f"{name}: same choice in the text", 100 * same, "%")
    yield Figure(f"{name}: answers' common prefix, mean of {ANSWER}", mean(prefixes), "tokens")
    yield Figure(f"{name}: answers' common prefix, median", median(prefixes), "tokens")
    yield Figure(f"{name}: equal answers of {len(prefixes)}", sum(n == ANSWER for n in prefixes), "")


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), len(one))


def quality(dtype: str, none: Measured, int8: Measured) -> Iterator[Figure]:
    yield Figure(f"{dtype}: weights", none.weights_bytes / MIB, "MiB")
    yield Figure(f"{dtype}: weights, int8", int8.weights_bytes / MIB, "MiB")
    yield Figure(f"{dtype}: perplexity", none.forced.perplexity, "")
    yield Figure(f"{dtype}: perplexity, int8", int8.forced.perplexity, "")
    ratio = int8.forced.perplexity / none.forced.perplexity
    yield at_most(f"{dtype}: perplexity, int8 over none", ratio, "", LARGEST_LOSS)
    yield from agreement(f"{dtype}: int8 against none", none, int8)


def step_times(engines: dict[str, Engine], n_rows: int, n_steps: int) -> dict[str, float]:
    """Median milliseconds of a decode step, the engines in turn."""
    rows = tuple(row(str(i), (100 + i,), start=CONTEXT, blocks=blocks_of(i, CONTEXT + 1)) for i in range(n_rows))
    times: dict[str, list[float]] = {name: [] for name in engines}
    for step in range(n_steps + WARM_UP):
        for name, engine in engines.items():
            started = time.thread_time()
            engine.runner.execute(StepPlan(step, rows))
            if step >= WARM_UP:
                times[name].append(1e3 * (time.thread_time() - started))
    return {name: median(values) for name, values in times.items()}


def speed(dtype: str, engines: dict[str, Engine], n_steps: int) -> Iterator[Figure]:
    for n_rows in TIMED_ROWS:
        name, times = f"{dtype}: step of {n_rows} row{'s' * (n_rows > 1)}", step_times(engines, n_rows, n_steps)
        yield Figure(name, times["none"], "ms")
        yield Figure(f"{name}, int8", times["int8"], "ms")
        yield Figure(f"{name}, none over int8", times["none"] / times["int8"], "")


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("model_dir", type=Path)
    options = parser.parse_args()
    tokenizer = Tokenizer(options.model_dir)
    text = tokenizer.encode(TEXT.read_text(encoding="utf-8"))
    text = text[:QUICK_TEXT] if options.quick else text
    prompts = [tokenizer.encode_chat([{"role": "user", "content": question}]) for question in QUESTIONS]
    figures = [Figure("tokens of the text", len(text), "")]
    plain: dict[str, Measured] = {}
    for dtype in ("float32", "bfloat16"):
        engines = {name: open_engine(options.model_dir, dtype, name) for name in ("none", "int8")}
        with closing(engines["none"]), closing(engines["int8"]):
            measured = {name: measure(engine, text, prompts) for name, engine in engines.items()}
            figures += quality(dtype, measured["none"], measured["int8"])
            figures += speed(dtype, engines, 10 if options.quick else 40)
        plain[dtype] = measured["none"]
    figures += agreement("bfloat16 against float32, no int8", plain["float32"], plain["bfloat16"])
    present(f"8-bit weights, steps behind {CONTEXT} tokens on one thread", figures, options.json)


if __name__ == "__main__":
    main()
