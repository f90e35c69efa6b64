"""Choosing a step's tokens, as the last part of the device's work on it (`begin`) and once that is done (`end`).

Where the device is the host, `end` does it all. Elsewhere the device chooses, and only the tokens cross the bus.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from lorikeet_engine.execution.sampling.draws import draw
from lorikeet_engine.execution.sampling.sampler import sample, uniform
from lorikeet_engine.execution.streams.pinned import upload
from lorikeet_engine.ops.interface import Ops
from lorikeet_engine.scheduling.plan import PlanRow


class TokenChoice(Protocol):
    """A row whose logits are not finite gets no token."""

    def begin(self, logits: torch.Tensor, logit_rows: Sequence[int], rows: Sequence[PlanRow]) -> None:
        """Part of the device's work; `logit_rows[i]` are the logits of `rows[i]`."""
        ...

    def end(self, rows: Sequence[PlanRow]) -> dict[str, int]:
        """The tokens by request, when that work is done and before the next step's begins."""
        ...


class HostChoice:
    """The host reads the logits where they are."""

    def __init__(self, ops: Ops, max_rows: int) -> None:
        del max_rows
        self._ops = ops
        self._logits = torch.empty(0)

    def begin(self, logits: torch.Tensor, logit_rows: Sequence[int], rows: Sequence[PlanRow]) -> None:
        del rows
        is_exact = len(logit_rows) == logits.shape[0]
        self._logits = logits if is_exact else logits[list(logit_rows)]

    @torch.inference_mode()
    def end(self, rows: Sequence[PlanRow]) -> dict[str, int]:
        return sample(self._logits, rows, self._ops)


class DeviceChoice:
    """The device chooses and copies its choice into pinned memory."""

    def __init__(self, ops: Ops, max_rows: int, device: torch.device | str) -> None:
        self._ops = ops
        self._device = torch.device(device)
        is_pinned = self._device.type != "cpu"
        self._tokens = torch.empty(max_rows, dtype=torch.int64, pin_memory=is_pinned)
        self._finite = torch.empty(max_rows, dtype=torch.bool, pin_memory=is_pinned)

    def begin(self, logits: torch.Tensor, logit_rows: Sequence[int], rows: Sequence[PlanRow]) -> None:
        if len(logit_rows) != logits.shape[0]:
            logits = self._ops.gather_rows(table=logits, rows=upload(logit_rows, self._device))
        tokens, finite = self._ops.greedy(logits=logits)
        drawn = [index for index, row in enumerate(rows) if row.sampling.temperature > 0]
        if drawn:
            places = upload(drawn, self._device)
            params = [rows[index].sampling for index in drawn]
            numbers = [uniform(rows[index].sampling.seed, rows[index].n_generated) for index in drawn]
            tokens.index_copy_(0, places, draw(logits.index_select(0, places), params, numbers))
        self._tokens[: len(rows)].copy_(tokens, non_blocking=True)
        self._finite[: len(rows)].copy_(finite, non_blocking=True)

    def end(self, rows: Sequence[PlanRow]) -> dict[str, int]:
        n = len(rows)
        outcomes = zip(rows, self._tokens[:n].tolist(), self._finite[:n].tolist(), strict=True)
        return {row.request_id: token for row, token, is_finite in outcomes if is_finite}
