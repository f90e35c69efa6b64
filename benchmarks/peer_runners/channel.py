"""How a runner's process talks to the benchmark: one JSON object a line, on the standard streams it was started with.

A runner starts its engine, says which version it is, and then answers batches until its input ends. Runs under the
Python of any peer's environment, so it imports the standard library only.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class Ask:
    """One request of a batch: all of a batch arrive at once. `adapter` is a name, empty for the base model."""

    prompt: list[int]
    max_tokens: int
    adapter: str = ""


@dataclass
class Answer:
    """The tokens that came, and when, in seconds after the batch was handed over."""

    tokens: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def add(self, tokens: Sequence[int], second: float) -> None:
        self.tokens.extend(tokens)
        self.times.extend([second] * len(tokens))


class Clock:
    """Seconds since a batch was handed over."""

    def __init__(self) -> None:
        self._started = time.perf_counter()

    def __call__(self) -> float:
        return time.perf_counter() - self._started


class Runner(Protocol):
    """An engine that is ready."""

    version: str

    def run(self, asks: list[Ask]) -> list[Answer]: ...
    def close(self) -> None: ...


def serve(start: Callable[[dict[str, Any]], Runner]) -> None:
    """Start an engine with the settings that the benchmark gives, and answer until it closes our input.

    Libraries print to standard output; from here on that goes where standard error goes.
    """
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    runner = start(json.loads(sys.argv[1]))
    try:
        channel.write(json.dumps({"version": runner.version}) + "\n")
        for line in sys.stdin:
            answers = runner.run([Ask(**ask) for ask in json.loads(line)])
            channel.write(json.dumps([[answer.tokens, answer.times] for answer in answers]) + "\n")
    finally:
        runner.close()
