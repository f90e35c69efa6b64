"""Our decoder in float32, driven by hand: logits at every position of a few sequences, alone or in one batch.

The model, its handling of adapters and the packed image are those that serve; only the number format is another, so
that what differs from PEFT's is the arithmetic and not the rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import torch

from lorikeet_adapters.image import AdapterImage, pack_image
from lorikeet_adapters.manifest import GRAIN
from lorikeet_engine.certification.compared.streamed import Checkpoint, PlainOps, streamed_weights
from lorikeet_engine.execution.kv_cache import KvCache
from lorikeet_engine.execution.staging import StepBuffer, StepSize
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.lora.arena import LoraArena
from lorikeet_engine.lora.batch import runs_of
from lorikeet_engine.model_spec import load_model_spec
from lorikeet_engine.models.llama import LlamaModel
from lorikeet_engine.models.served_linears import ServedLinears
from lorikeet_engine.models.weights import load_weights
from lorikeet_engine.ops.cpu import CpuOps
from lorikeet_engine.scheduling.plan import Phase, PlanRow, SamplingParams, StepPlan

NO_EXTENT: Final = -1
BLOCK_SIZE: Final = 32

_GREEDY: Final = SamplingParams()
_NOBODY: Final = AdapterKey("", "")


@dataclass(frozen=True, slots=True)
class Line:
    """A prompt, the extent of its adapter, and the tokens to follow it; without them, the likeliest follow."""

    prompt: tuple[int, ...]
    extent: int = NO_EXTENT
    forced: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """What the model said of one line.

    Attributes:
        prompt: of the line.
        logits: float32, after every token of the prompt and after every token that followed but the last.
        tokens: that followed the prompt.
        chosen: the likeliest ones in their places; the same unless others were forced.
    """

    prompt: tuple[int, ...]
    logits: torch.Tensor
    tokens: tuple[int, ...]
    chosen: tuple[int, ...]


class OwnModel:
    """The base model in float32, and an arena that holds the adapters of one measurement."""

    def __init__(self, model_dir: Path, base_model_name: str, *, is_streamed: bool = False) -> None:
        """`is_streamed`: it is too large to be held. Raises UnsupportedModel."""
        self.spec = load_model_spec(model_dir)
        self.table = self.spec.module_table(base_model_name)
        if is_streamed:
            plain = PlainOps()
            self._ops: CpuOps = plain
            self._weights = streamed_weights(Checkpoint(model_dir), self.spec, plain)
        else:
            self._ops = CpuOps()
            self._weights = load_weights(model_dir, self.spec, dtype=torch.float32, ops=self._ops)
        self._linears = ServedLinears(ops=self._ops, weights=self._weights, table=self.table)

    def pack(self, normalised: bytes, digest: str, dtype: torch.dtype) -> AdapterImage:
        """Raises AdapterRejected or AdapterImageDamaged."""
        return pack_image(normalised, digest=digest, table=self.table, dtype=dtype, base=self._linears)

    def arena(self, *extents: torch.Tensor) -> LoraArena:
        """An arena with these packed adapters one behind the other: the first at grain 0."""
        n_bytes = sum(extent.nbytes for extent in extents)
        arena = LoraArena(table=self.table, pool_bytes=n_bytes, dtype=torch.float32, device="cpu")
        base = 0
        for extent in extents:
            arena.write(base, extent)
            base += extent.numel() // GRAIN
        return arena

    @torch.inference_mode()
    def trace(self, lines: Sequence[Line], n_tokens: int, arena: LoraArena) -> list[Trace]:
        """All lines in one batch: their prompts in the first step, then one token of each in every step.

        `lines` are in the scheduler's order: by extent, those of the base model last.
        """
        longest = max(len(line.prompt) for line in lines) + n_tokens
        n_blocks = -(-longest // BLOCK_SIZE)
        batch = _Batch(lines, n_blocks)
        kv = KvCache(self.spec, n_blocks=1 + n_blocks * len(lines), block_size=BLOCK_SIZE, dtype=torch.float32)
        model = LlamaModel(
            spec=self.spec,
            ops=self._ops,
            weights=self._weights,
            arena=arena,
            max_positions=longest,
            block_size=BLOCK_SIZE,
        )
        for _ in range(n_tokens):
            plan = batch.next_plan()
            batch.take(self._logits(plan, model, kv, arena))
        return batch.traces()

    def _logits(self, plan: StepPlan, model: LlamaModel, kv: KvCache, arena: LoraArena) -> torch.Tensor:
        """Of every token of the step."""
        runs = runs_of(plan.rows, arena) or None
        code = () if runs is None else self._ops.encode_runs(runs, plan.n_tokens)
        size = StepSize(
            n_tokens=plan.n_tokens,
            n_rows=len(plan.rows),
            n_sampled=plan.n_tokens,
            table_width=len(plan.rows[0].block_table),
            code_size=len(code),
        )
        buffer = StepBuffer(size, samples_all=True)
        buffer.fill(plan, code, block_size=BLOCK_SIZE, n_blocks=kv.n_blocks)
        return self._ops.run(partial(model.forward, buffer.inputs(plan, runs), kv.layers))


class _Batch:
    """Where the lines of one batch stand."""

    def __init__(self, lines: Sequence[Line], n_blocks: int) -> None:
        self._lines = lines
        self._n_blocks = n_blocks
        self._computed = [0] * len(lines)
        self._ids = [list(line.prompt) for line in lines]
        self._pieces: list[list[torch.Tensor]] = [[] for _ in lines]
        self._chosen: list[list[int]] = [[] for _ in lines]

    def next_plan(self) -> StepPlan:
        """What of every line is not computed yet."""
        return StepPlan(0, tuple(self._row(index, line) for index, line in enumerate(self._lines)))

    def _row(self, index: int, line: Line) -> PlanRow:
        first = 1 + index * self._n_blocks
        start, chosen = self._computed[index], self._chosen[index]
        return PlanRow(
            request_id=str(index),
            phase=Phase.DECODE if chosen else Phase.PREFILL,
            token_ids=tuple(self._ids[index][start:]),
            start=start,
            block_table=tuple(range(first, first + self._n_blocks)),
            adapter=None if line.extent == NO_EXTENT else _NOBODY,
            extent=line.extent,
            samples=True,
            sampling=_GREEDY,
            n_generated=len(chosen),
        )

    def take(self, logits: torch.Tensor) -> None:
        """The logits of the step that was planned last."""
        sizes = [len(ids) - start for ids, start in zip(self._ids, self._computed, strict=True)]
        for index, piece in enumerate(torch.split(logits, sizes)):
            chosen, forced = self._chosen[index], self._lines[index].forced
            self._pieces[index].append(piece.clone())
            self._computed[index] = len(self._ids[index])
            likeliest = int(piece[-1].argmax())
            self._ids[index].append(likeliest if forced is None else forced[len(chosen)])
            chosen.append(likeliest)

    def traces(self) -> list[Trace]:
        return [
            Trace(line.prompt, torch.cat(pieces), tuple(ids[len(line.prompt) :]), tuple(chosen))
            for line, ids, pieces, chosen in zip(self._lines, self._ids, self._pieces, self._chosen, strict=True)
        ]
