"""The rows of a step while it is planned: who computes how many tokens, and what that amounts to.

Decides nothing; it keeps the token budget, groups rows by adapter, and writes them down.
"""

from __future__ import annotations

from typing import NamedTuple

from lorikeet_engine.cost import StepShape, lora_row_flops
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.adapters.residency import AdapterResidency, Placement
from lorikeet_engine.scheduling.events import Admitted
from lorikeet_engine.scheduling.plan import BlockCopy, Phase, PlanRow, StepPlan
from lorikeet_engine.scheduling.request import Request

Group = list[tuple[Request, int, tuple[int, ...]]]  # request, tokens to compute, block table


class AdapterRows(NamedTuple):
    """One adapter's size in bytes, and the tokens that the step computes on it."""

    n_bytes: int
    n_decode: int
    n_prefill: int


class Batch:
    """Everything one step will do. A decode may be taken out again when its request is preempted."""

    def __init__(self, step_id: int, budget: int, planned_s: float) -> None:
        self.step_id = step_id
        self.budget = budget
        self.planned_s = planned_s
        self.placements: list[Placement] = []
        self.swap_outs: list[BlockCopy] = []
        self.swap_ins: list[BlockCopy] = []
        self.copies: list[BlockCopy] = []
        self.copying: list[Request] = []  # whose copies these are
        self.passed_over: list[Request] = []  # they decode, and no block was to be had
        self.adapters: dict[AdapterKey, AdapterRows] = {}  # once it is written
        self.prefills: Group = []
        self.admissions: list[Admitted] = []
        self.is_saturated = False  # somebody has to wait for want of budget, seats or KV
        self._decodes: dict[str, tuple[Request, int, tuple[int, ...]]] = {}

    def add_decode(self, request: Request, table: tuple[int, ...]) -> None:
        self._decodes[request.request_id] = (request, 1, table)
        self.budget -= 1

    def remove_decode(self, request: Request) -> None:
        if self._decodes.pop(request.request_id, None):
            self.budget += 1

    def has_decode(self, request: Request) -> bool:
        return request.request_id in self._decodes

    def add_prefill(self, request: Request, n_tokens: int, table: tuple[int, ...]) -> None:
        self.prefills.append((request, n_tokens, table))
        self.budget -= n_tokens

    def close(self) -> None:
        """What is left of the budget is too little for anybody."""
        self.budget = 0

    def __bool__(self) -> bool:
        return bool(self._decodes or self.prefills or self.copying)

    def write(self, residency: AdapterResidency, *, adapter_price: float, itemsize: int) -> tuple[StepPlan, StepShape]:
        """The plan, its rows ordered by (phase, adapter with the base model last, arrival), and what it amounts to.

        An adapter's bytes are read once a step, so its rows share their price.
        """
        rows: list[PlanRow] = []
        shape = StepShape()
        decodes = _by_adapter(list(self._decodes.values()))
        prefills = _by_adapter(self.prefills)
        adapters = self.adapters
        for key, group in decodes.items():
            if key is not None:
                adapters[key] = AdapterRows(residency.n_bytes_of(key), len(group), 0)
        for key, group in prefills.items():
            if key is not None:
                n_decode = adapters[key].n_decode if key in adapters else 0
                adapters[key] = AdapterRows(residency.n_bytes_of(key), n_decode, sum(n for _, n, _ in group))
        for phase, groups in ((Phase.DECODE, decodes), (Phase.PREFILL, prefills)):
            for key in sorted(key for key in groups if key is not None):
                group, n_bytes = groups[key], adapters[key].n_bytes
                _write_group(rows, shape, phase, group, key, residency.base(key))
                shape.lora_flops += lora_row_flops(n_bytes, itemsize=itemsize) * sum(n for _, n, _ in group)
                sharers = len(decodes.get(key, ())) + len(prefills.get(key, ()))
                _charge_adapter(group, adapter_price * n_bytes / sharers)
            if None in groups:
                _write_group(rows, shape, phase, groups[None], None, -1)
        shape.lora_bytes = sum(rows.n_bytes for rows in adapters.values())
        plan = StepPlan(
            self.step_id,
            tuple(rows),
            tuple(self.placements),
            tuple(self.swap_outs),
            tuple(self.swap_ins),
            tuple(self.copies),
        )
        return plan, shape


def _by_adapter(chunks: Group) -> dict[AdapterKey | None, Group]:
    groups: dict[AdapterKey | None, Group] = {}
    for chunk in chunks:
        key = chunk[0].adapter
        group = groups.get(key)
        if group is None:
            groups[key] = [chunk]
        else:
            group.append(chunk)
    return groups


def _write_group(
    rows: list[PlanRow], shape: StepShape, phase: Phase, group: Group, adapter: AdapterKey | None, extent: int
) -> None:
    if phase is Phase.DECODE:
        context = 0
        for request, _, table in group:
            tokens, start = request.tokens, request.n_computed
            n_output = len(tokens) - request.n_prompt
            rows.append(
                PlanRow(
                    request.request_id, phase, (tokens[-1],), start, table, adapter, extent, True, request.sampling,
                    n_output,
                )
            )  # fmt: skip
            context += start + 1
        shape.n_decode += len(group)
        shape.n_sampled += len(group)
        shape.decode_context += context
        return
    for request, n_tokens, table in group:
        start, stop, n_known = request.n_computed, request.n_computed + n_tokens, len(request.tokens)
        samples = stop == n_known
        token_ids = tuple(request.tokens[start:stop])
        n_output = n_known - request.n_prompt
        rows.append(
            PlanRow(
                request.request_id, phase, token_ids, start, table, adapter, extent, samples, request.sampling, n_output
            )
        )
        shape.add_prefill(n_tokens, start, samples=samples)


def _charge_adapter(group: Group, virtual_tokens: float) -> None:
    for request, _, _ in group:
        request.account.charge(virtual_tokens)
