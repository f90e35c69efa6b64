"""Measures launch configurations on this machine's GPU: `python -m lorikeet_engine.ops.triton.tuning MODEL_DIR`.

Writes the table that serving reads (`tuned.json` beside this file, or `--output`): the entries of this GPU for this
model's shapes anew, all others as they were. An entry is written where it beats the rule of thumb by 2 %.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch

from lorikeet_engine.model_spec import load_model_spec
from lorikeet_engine.ops.triton.tuning.space import FULL, HeadShape, Task, tasks
from lorikeet_engine.ops.triton.tuning.table import TABLE, Tuned, read_table, write_table
from lorikeet_engine.ops.triton.tuning.timing import Call, seconds_of

LEAST_GAIN = 0.02
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}

Timer = Callable[[Sequence[Call]], float]


def tune(todo: Iterable[Task], timer: Timer = seconds_of) -> list[Tuned]:
    """The choices worth an entry."""
    return [entry for task in todo if (entry := choose(task, timer)) is not None]


def choose(task: Task, timer: Timer) -> Tuned | None:
    """The fastest configuration; None where the rule's own, the first, is as good."""
    times = {index: _seconds(task, config, timer) for index, config in enumerate(task.configs)}
    best = min(times, key=lambda index: times[index])
    sys.stdout.write(f"{task.kernel} {dict(task.key)}: {1e6 * times[best]:.1f} µs, the rule {1e6 * times[0]:.1f} µs\n")
    if times[best] > (1 - LEAST_GAIN) * times[0]:
        return None
    return Tuned(task.kernel, task.key, task.configs[best], 1e6 * times[best])


def _seconds(task: Task, config: dict[str, int], timer: Timer) -> float:
    """Infinite for what this GPU has not the registers or the shared memory for."""
    try:
        return timer(task.calls(config))
    except Exception as error:
        sys.stdout.write(f"{task.kernel} {config}: {type(error).__name__}\n")
        return float("inf")


def merged(old: Sequence[Tuned], new: Sequence[Tuned], asked: Sequence[Task]) -> tuple[Tuned, ...]:
    """What was known, without what was asked for again, and what was found."""
    again = [(task.kernel, dict(task.key)) for task in asked]
    kept = [entry for entry in old if (entry.kernel, dict(entry.key)) not in again]
    return (*kept, *new)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tuning", description="Measure launch configurations on this GPU.")
    parser.add_argument("model_dir", type=Path, help="a local Hugging Face directory; its config.json is read")
    parser.add_argument("--dtype", choices=tuple(DTYPES), default="bfloat16")
    parser.add_argument("--block-size", type=int, default=16, help="tokens of a KV block")
    parser.add_argument("--output", type=Path, default=TABLE, help="the table, read first where it exists")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.stderr.write("tuning: no CUDA device\n")
        return 2
    spec = load_model_spec(options.model_dir)
    shape = HeadShape(spec.n_heads, spec.n_kv_heads, spec.head_dim, options.block_size, DTYPES[options.dtype])
    with torch.inference_mode():
        asked = list(tasks(shape, spec.module_table("tuned"), FULL, "cuda"))
        found = tune(asked)
    table = dict(read_table(options.output)) if options.output.exists() else {}
    name = torch.cuda.get_device_name()
    table[name] = merged(table.get(name, ()), found, asked)
    write_table(table, options.output)
    sys.stdout.write(f"{len(found)} entries for {name} in {options.output}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
