"""FLOPs and bytes of steps counted once more, from the rows of their plans and the model's shape.

Walks every matrix and every pair of a query and a key, token by token where that matters, and shares no code with
`cost`: it is there to check the counters against.
"""

from __future__ import annotations

from dataclasses import dataclass

from lorikeet_engine.model_spec import ModelSpec
from lorikeet_engine.scheduling.plan import Phase, StepPlan


@dataclass(slots=True)
class Recount:
    """Totals over all plans shown. Requests must be of the base model."""

    spec: ModelSpec
    itemsize: int
    flops: int = 0
    read_bytes: int = 0
    write_bytes: int = 0
    steps: int = 0

    def add(self, plan: StepPlan) -> None:
        if not plan.rows:
            return
        self.steps += 1
        n_tokens = n_sampled = n_pairs = n_read = 0
        for row in plan.rows:
            assert row.adapter is None
            for position in range(row.start, row.start + len(row.token_ids)):
                n_tokens += 1
                n_pairs += position + 1  # a token attends to itself and to all before it
            # A decode row's own key is read back; a chunk's are at hand, and it reads what was there before it.
            n_read += row.start + (1 if row.phase is Phase.DECODE else 0)
            n_sampled += row.samples
        spec = self.spec
        head = spec.vocab * spec.hidden
        linears = sum(rows * columns for rows, columns in self._linears()) * spec.n_layers
        score_and_mix = 2 * 2 * spec.n_heads * spec.head_dim
        self.flops += 2 * linears * n_tokens + 2 * head * n_sampled + score_and_mix * n_pairs * spec.n_layers
        keys_and_values = 2 * spec.n_kv_heads * spec.head_dim * spec.n_layers * self.itemsize
        weights = linears + (head if n_sampled else 0) + spec.hidden * n_tokens
        self.read_bytes += weights * self.itemsize + keys_and_values * n_read
        self.write_bytes += keys_and_values * n_tokens

    def _linears(self) -> list[tuple[int, int]]:
        """(in, out) of one layer's matrices."""
        spec = self.spec
        heads, kv = spec.n_heads * spec.head_dim, spec.n_kv_heads * spec.head_dim
        attention = [(spec.hidden, heads), (spec.hidden, kv), (spec.hidden, kv), (heads, spec.hidden)]
        return [
            *attention,
            (spec.hidden, spec.intermediate),
            (spec.hidden, spec.intermediate),
            (spec.intermediate, spec.hidden),
        ]
