"""One adapter, measured: against PEFT, against the base model, and in a batch with neighbours.

company    all probes with the adapter, some with another adapter and some with the base model, in one batch; what
           follows is what the model finds likeliest
PEFT       the adapter's lines of it, the tokens that followed included: logits after every token
alone      lines of all three kinds, each by itself and followed by the same tokens, so that it can be compared to
           the last token; those of the base model and of the other adapter are computed once
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from lorikeet_adapters.digest import read_normalised_file
from lorikeet_adapters.errors import AdapterRejected
from lorikeet_adapters.files import WEIGHTS_FILE
from lorikeet_adapters.image import AdapterImage
from lorikeet_adapters.manifest import GRAIN, extent_grains
from lorikeet_engine.build import digest_of_model
from lorikeet_engine.certification.compared.neighbour import neighbour_extent, neighbour_rank
from lorikeet_engine.certification.compared.oracle import PeftOracle
from lorikeet_engine.certification.compared.own_model import Line, OwnModel, Trace
from lorikeet_engine.certification.compared.probes import N_TOKENS, probes_of
from lorikeet_engine.certification.measured import Measured
from lorikeet_engine.certification.room import FLOAT32_BYTES, Room
from lorikeet_engine.lora.arena import LoraArena

N_COMPANIONS: Final = 2  # lines of each kind that are computed alone
SMALLEST: Final = 1e-30  # largest logit that is divided by: an adapter can bring all of them to zero
SERVING_DTYPES: Final = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
TIE: Final = 1e-5  # of the largest logit: two that are no further apart are one to sums in float32 in another order


@dataclass(frozen=True, slots=True)
class _Parity:
    """Compared with PEFT."""

    difference: float
    scale: float
    agreement: float


class Measurer:
    """Holds the base model for any number of adapters."""

    _own: OwnModel

    def __init__(self, model_dir: Path, base_model_name: str, *, max_rank: int, memory_bytes: int) -> None:
        """Raises UnsupportedModel, and MemoryError where no adapter would fit beside what must be held."""
        self._model_dir, self._name, self._max_rank = model_dir, base_model_name, max_rank
        self._room = Room.for_model(model_dir, memory_bytes)
        self._probes = probes_of(model_dir)
        self._digest = digest_of_model(model_dir)
        self._oracle: PeftOracle | None = None
        self._is_streamed: bool | None = None
        self._hold(self._room.copies_beside(0, 0))
        self.table = self._own.table

    def _hold(self, copies: int) -> None:
        """The base model twice, ours and PEFT's, or once, or not at all."""
        if copies < 2:
            self._oracle = None
        if self._is_streamed is not (copies < 1):
            self._hold_own(is_streamed=copies < 1)
        if copies == 2 and self._oracle is None:
            self._oracle = PeftOracle(self._model_dir, self._own.table)

    def _hold_own(self, *, is_streamed: bool) -> None:
        """Our model, and what it answers by itself."""
        if self._is_streamed is not None:
            del self._own  # there may be no room for two
        self._own = OwnModel(self._model_dir, self._name, is_streamed=is_streamed)
        self._is_streamed = is_streamed
        self._n_tokens = 1 if is_streamed else N_TOKENS  # each costs a walk through the file
        nothing = self._own.arena()
        self._prompts = self._own.trace([Line(probe) for probe in self._probes], 1, nothing)
        self._base = self._alone([Line(probe) for probe in self._probes[:N_COMPANIONS]], nothing)
        self._neighbours: dict[int, tuple[torch.Tensor, list[Trace]]] = {}

    def measure(self, *, folder: Path, image: Path, digest: str, serving_dtype: str) -> Measured:
        """The adapter that was uploaded as `folder` and normalised to `image`.

        Args:
            serving_dtype: "bfloat16", "float16" or "float32", the number format of the engine.

        Raises:
            AdapterRejected: its weights or their arithmetic leave float32 or the engine's format, PEFT does not load
                it, or it does not fit into memory.
            AdapterImageDamaged: `image` is not what `digest` says.
        """
        packed = self._packed(image, digest, SERVING_DTYPES[serving_dtype])
        other, neighbours = self._neighbour(neighbour_rank(packed.rank_max, self._max_rank))
        arena, second = self._own.arena(packed.extent, other), packed.extent.numel() // GRAIN
        company = self._own.trace(
            [
                *(Line(probe, 0) for probe in self._probes),
                *(Line(trace.prompt, second, trace.tokens) for trace in neighbours),
                *(Line(trace.prompt, forced=trace.tokens) for trace in self._base),
            ],
            self._n_tokens,
            arena,
        )
        adapted, others = company[: len(self._probes)], company[len(self._probes) :]
        _check_finite([trace.logits for trace in adapted])
        own = self._alone([Line(trace.prompt, 0, trace.tokens) for trace in adapted[:N_COMPANIONS]], arena)
        own_pairs = list(zip(adapted[:N_COMPANIONS], own, strict=True))
        pairs = list(zip(others, [*neighbours, *self._base], strict=True))
        parity = self._parity(folder, adapted)
        return Measured(
            base_model_digest=self._digest,
            effect=_effect(adapted, self._prompts),
            oracle="reference_ops" if parity is None else "peft",
            max_logit_difference=None if parity is None else parity.difference,
            logit_scale=None if parity is None else parity.scale,
            greedy_agreement=None if parity is None else parity.agreement,
            own_max_logit_difference=max(_relative_difference(*pair) for pair in own_pairs),
            own_unchanged=all(_same_tokens(*pair) for pair in own_pairs),
            neighbour_max_logit_difference=max(_relative_difference(*pair) for pair in pairs),
            neighbours_unchanged=all(_same_tokens(*pair) for pair in pairs),
            n_probes=len(self._probes),
            n_tokens=self._n_tokens * len(self._probes),
            warnings=(),
        )

    def _packed(self, image: Path, digest: str, serving: torch.dtype) -> AdapterImage:
        """In float32; packing it as it will be served is only an attempt."""
        self._room.copies_beside(image.stat().st_size, 0)
        data = image.read_bytes()
        blocks = (delta.block for delta in read_normalised_file(data, digest).deltas)
        n_grains = extent_grains(self.table.n_layers, FLOAT32_BYTES, blocks)
        self._hold(self._room.copies_beside(len(data), n_grains * GRAIN * FLOAT32_BYTES))
        packed = self._own.pack(data, digest, torch.float32)
        if serving != torch.float32:
            self._own.pack(data, digest, serving)
        return packed

    def _alone(self, lines: Sequence[Line], arena: LoraArena) -> list[Trace]:
        """Each line in a batch of its own."""
        return [trace for line in lines for trace in self._own.trace([line], self._n_tokens, arena)]

    def _neighbour(self, rank: int) -> tuple[torch.Tensor, list[Trace]]:
        """The other adapter and what it answers alone."""
        if rank not in self._neighbours:
            extent = neighbour_extent(self._own.table, rank)
            lines = [Line(probe, 0) for probe in self._probes[:N_COMPANIONS]]
            self._neighbours[rank] = extent, self._alone(lines, self._own.arena(extent))
        return self._neighbours[rank]

    def _parity(self, folder: Path, adapted: Sequence[Trace]) -> _Parity | None:
        if self._oracle is None:
            return None
        theirs = self._oracle.logits(folder, [trace.prompt + trace.tokens[:-1] for trace in adapted])
        _check_finite(theirs)  # a comparison with what is no number would find nothing
        pairs = list(zip(theirs, adapted, strict=True))
        agreed = sum(_n_agreed(logits, trace) for logits, trace in pairs)
        return _Parity(
            difference=max(float((logits - trace.logits).abs().max()) for logits, trace in pairs),
            scale=max(float(logits.abs().max()) for logits in theirs),
            agreement=agreed / (self._n_tokens * len(pairs)),
        )


def _check_finite(logits: Sequence[torch.Tensor]) -> None:
    if not all(bool(torch.isfinite(values).all()) for values in logits):
        raise AdapterRejected(
            "certificate_failed",
            subject=WEIGHTS_FILE,
            found="logits that are not finite on the probes",
            allowed="finite logits",
        )


def _effect(adapted: Sequence[Trace], prompts: Sequence[Trace]) -> float:
    """Root mean square of the change of logits over that of the logits, on the prompts: what follows them differs."""
    change = total = 0.0
    for ours, base in zip(adapted, prompts, strict=True):
        change += float((ours.logits[: len(base.logits)] - base.logits).double().square().sum())
        total += float(base.logits.double().square().sum())
    return math.sqrt(change / total)


def _n_agreed(logits: torch.Tensor, trace: Trace) -> int:
    """Tokens that would have followed by these logits, too."""
    return int((logits[-len(trace.tokens) :].argmax(dim=1) == torch.tensor(trace.tokens)).sum())


def _relative_difference(together: Trace, alone: Trace) -> float:
    largest = max(float(alone.logits.abs().max()), SMALLEST)
    difference = float((together.logits - alone.logits).abs().max()) / largest
    return difference if math.isfinite(difference) else math.inf  # the largest of some would not be no number


def _same_tokens(together: Trace, alone: Trace) -> bool:
    """Whether every choice is the same; of two logits in a tie, either may be chosen."""
    choices, tie = alone.logits[-len(alone.tokens) :], TIE * float(alone.logits.abs().max())
    return all(
        ours == theirs or float(row[theirs] - row[ours]) <= tie
        for row, ours, theirs in zip(choices, together.chosen, alone.chosen, strict=True)
    )
