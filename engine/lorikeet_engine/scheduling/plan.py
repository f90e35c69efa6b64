"""The two records in which deciding and computing meet.

The scheduler writes a `StepPlan`, the runner answers with a `StepResult`; neither imports the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.adapters.residency import Placement


class Phase(IntEnum):
    """Order matters: decode rows stand before prefill rows in every step."""

    DECODE = 0
    PREFILL = 1


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are drawn. `temperature` 0 is greedy; `top_k` 0 and `top_p` 1 switch those filters off."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0


class PlanRow(NamedTuple):
    """One request's share of a step; a tuple, because hundreds are made every step.

    Attributes:
        token_ids: the tokens to compute now, at positions `start … start + len(token_ids) - 1`.
        start: how many tokens of the request are in the KV cache already.
        block_table: KV block of each `block_size` tokens, covering at least `start + len(token_ids)` tokens.
        adapter: whose delta applies, None for the base model.
        extent: the adapter's base in the arena, in grains; -1 for the base model.
        samples: whether the last token's logits are sampled (false for all but the last chunk of a prompt).
        n_generated: index of the token to sample; with `sampling.seed` it fixes the draw, whoever shares the batch.
    """

    request_id: str
    phase: Phase
    token_ids: tuple[int, ...]
    start: int
    block_table: tuple[int, ...]
    adapter: AdapterKey | None
    extent: int
    samples: bool
    sampling: SamplingParams
    n_generated: int


class BlockCopy(NamedTuple):
    """Copy one KV block over all layers; what the two ids count is said by the list it stands in."""

    source: int
    target: int


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What one step does, in this order: placements, swap-outs, swap-ins, copies, rows.

    Rows are ordered by (phase, adapter with the base model last, arrival), so one adapter's rows are contiguous
    inside each phase: at most two runs an adapter. The rows' extents are those after all moves of the placements.

    Attributes:
        rows: may be empty when there are only copies to make.
        placements: adapters to bring into the arena.
        swap_outs: device block to host slot.
        swap_ins: host slot to device block.
        copies: device block to device block, for the partial tail of a fork.
    """

    step_id: int
    rows: tuple[PlanRow, ...]
    placements: tuple[Placement, ...] = ()
    swap_outs: tuple[BlockCopy, ...] = ()
    swap_ins: tuple[BlockCopy, ...] = ()
    copies: tuple[BlockCopy, ...] = ()

    @property
    def n_tokens(self) -> int:
        return sum(len(row.token_ids) for row in self.rows)


@dataclass(frozen=True, slots=True)
class StepResult:
    """What the step did: the token sampled for each row that asked for one, and how long the device worked on it.

    A row that asked and has none had logits that are not finite; that is its own failure, not the step's. `waited_s` is
    how long the caller of `collect` was kept.
    """

    step_id: int
    sampled: dict[str, int]
    seconds: float
    waited_s: float = 0.0
