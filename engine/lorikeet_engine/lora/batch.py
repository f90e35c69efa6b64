"""Which tokens of a step belong to which adapter.

Rebuilt for every step from the plan and never remembered: an extent may have moved, or hold another tenant's adapter,
since the last one.
"""

from __future__ import annotations

from collections.abc import Iterable

from lorikeet_engine.lora.arena import LoraArena
from lorikeet_engine.ops.interface import LoraRun
from lorikeet_engine.scheduling.plan import PlanRow


def runs_of(rows: Iterable[PlanRow], arena: LoraArena) -> tuple[LoraRun, ...]:
    """Consecutive tokens of one extent become one run; the base model's tokens are in none."""
    runs: list[LoraRun] = []
    token = 0
    for row in rows:
        n_tokens = len(row.token_ids)
        if row.extent >= 0:
            last = runs[-1] if runs else None
            if last is not None and last.base == row.extent and last.first_token + last.n_tokens == token:
                runs[-1] = LoraRun(last.base, last.first_token, last.n_tokens + n_tokens, last.head)
            else:
                runs.append(LoraRun(row.extent, token, n_tokens, arena.head(row.extent)))
        token += n_tokens
    return tuple(runs)
