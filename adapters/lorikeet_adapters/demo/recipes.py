"""How each demo adapter is trained. The three differ on purpose, so that one batch mixes ranks, targets and depths.

Rank, targets and layers are chosen so that the weights stay under 2.5 MB in float32, the precision the engine's
equality tests compare in.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Recipe:
    """Everything that decides what training makes out of the texts, besides the library versions."""

    rank: int
    alpha: int
    target_modules: tuple[str, ...]
    layers: tuple[int, ...] | None = None  # None: all of them
    steps: int = 140
    batch: int = 8
    learning_rate: float = 1.5e-3
    warmup_steps: int = 8
    seed: int = 20


RECIPES = {
    "pirate": Recipe(rank=8, alpha=16, target_modules=("q_proj", "v_proj")),
    "json": Recipe(rank=4, alpha=8, target_modules=("q_proj", "k_proj", "v_proj", "o_proj")),
    "haiku": Recipe(
        rank=16, alpha=32, target_modules=("q_proj", "v_proj"), layers=tuple(range(12, 30)), learning_rate=1e-3
    ),
}
