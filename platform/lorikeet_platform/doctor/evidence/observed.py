"""What a window says of the requests in it: how long they are, and how many the KV pool holds of such."""

from __future__ import annotations

from dataclasses import dataclass

from lorikeet_engine.cost import theoretical_concurrency
from lorikeet_engine.stats import EngineDesign, EngineStats
from lorikeet_platform.engine_watch.latency import spread_of
from lorikeet_platform.engine_watch.window import Window


@dataclass(frozen=True, slots=True)
class Lengths:
    """Means over the window's requests, in tokens; 0 where none can be told."""

    prompt: float
    output: float

    @property
    def total(self) -> float:
        return self.prompt + self.output


def lengths(window: Window) -> Lengths:
    """Of prompts that were begun and of answers that ended; while none ended, of what runs by its context."""
    n_begun, n_ended = spread_of(window, "queue").count, spread_of(window, "e2e").count
    prompt = queried_tokens(window) / n_begun if n_begun else 0.0
    if n_ended:
        return Lengths(prompt, window.generated_tokens / n_ended)
    rows = sum(step.n_decode for step in window.steps)
    context = sum(step.decode_context for step in window.steps) / rows if rows else 0.0
    return Lengths(prompt, 2 * max(0.0, context - prompt))  # an answer is half done, on average


def queried_tokens(window: Window) -> int:
    """Tokens of the prompts that were begun, cached ones included."""
    return sum(use.queried_tokens for use in window.after.prefix.uses) - sum(
        use.queried_tokens for use in window.before.prefix.uses
    )


def concurrency(window: Window, design: EngineDesign) -> float | None:
    """Requests of the window's mean length that the KV pool holds at once; None when no length is known."""
    n_tokens = round(lengths(window).total)
    return theoretical_concurrency(design.n_blocks, design.block_size, n_tokens) if n_tokens > 0 else None


def kv_share(window: Window) -> float:
    """Part of the KV pool that requests hold or were promised, on average over the window's readings."""
    shares = [
        (kv.used + kv.reserved + kv.in_flight) / kv.capacity
        for kv in (stats.kv for stats in stats_of(window))
        if kv.capacity
    ]
    return sum(shares) / len(shares) if shares else 0.0


def stats_of(window: Window) -> list[EngineStats]:
    """The window's readings, oldest first."""
    return [reading.stats for reading in window.readings] or [window.before, window.after]
