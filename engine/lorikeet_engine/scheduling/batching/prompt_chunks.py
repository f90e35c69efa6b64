"""Which part of which prompt a step computes: block-aligned chunks with what is left of the token budget.

Knows prompts that were begun; who may begin is `doorkeeper`'s.
"""

from __future__ import annotations

from lorikeet_engine.memory.kv.manager import KvManager
from lorikeet_engine.scheduling.batching.batch import Batch
from lorikeet_engine.scheduling.batching.running_set import RunningSet
from lorikeet_engine.scheduling.limits import SchedulerLimits
from lorikeet_engine.scheduling.request import Request
from lorikeet_engine.scheduling.waiting.fairness import Prices


class PromptChunks:
    """Adds chunks to a batch, and has their tenants pay for them."""

    def __init__(self, limits: SchedulerLimits, *, kv: KvManager, running: RunningSet, prices: Prices) -> None:
        self._kv = kv
        self._running = running
        self._prices = prices
        self._chunks = limits.enable_chunked_prefill

    def go_on(self, batch: Batch, *, of_this_step: bool = False) -> None:
        """Go on with the prompts that were begun, as fairness would have them done; of equal ones the oldest first.

        Args:
            of_this_step: only with those that this step can finish.
        """
        for request in sorted(self._running, key=lambda request: (not request.goes_first, request.virtual_finish)):
            is_begun = not request.decodes and request.planned_step != batch.step_id
            if is_begun and batch.budget > 0 and not (of_this_step and request.n_left_to_compute > batch.budget):
                self.add(request, batch)

    def add(self, request: Request, batch: Batch) -> None:
        """Plan as much of the request's prompt as the budget allows, whole blocks but for the last chunk."""
        start, n_left = request.n_computed, request.n_left_to_compute
        n_tokens = min(n_left, batch.budget)
        if n_tokens < n_left:
            block_size = self._kv.block_size
            n_tokens = (start + n_tokens) // block_size * block_size - start
            if n_tokens <= 0 or not self._chunks:
                return
        stop = start + n_tokens
        table = self._kv.grow(request.request_id, stop)
        assert table is not None, "an admitted request was promised blocks for its whole prompt"
        request.n_scheduled, request.progressed_s, request.planned_step = stop, batch.planned_s, batch.step_id
        if request.n_charged < stop:  # what is computed again is neither paid for nor counted again
            n_new = max(0, min(stop, request.n_prompt) - request.n_charged)
            request.account.charge(self._prices.input * n_new)
            request.account.n_computed += n_new
            request.n_charged = stop
        batch.add_prefill(request, n_tokens, table)
