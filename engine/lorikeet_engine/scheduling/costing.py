"""What each request costs, and what all of them together do: work by steps, memory by how long it is held.

A step's parts are charged to whoever caused them, and what its rows share is divided: the layers' weights among its
tokens, the head's among the rows that sample, an adapter's bytes among its tokens. Prompt rows are charged as they
come. Answer rows are not looked at: a request's run of them is charged in one go when it stops running, out of how far
it got, and of how much one row of each of those steps had to read of what is shared. KV blocks and adapters are held
likewise in equal parts by whoever runs on them (`BlockPool.seconds`), so that time can pass without anybody's part
being touched. A step costs the same here, whether 2 requests run or 200.

The totals come from the steps' shapes and the ledgers, not from requests: that both agree is for tests to see.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lorikeet_engine.cost import ModelCost, StepShape, lora_row_flops, step_work
from lorikeet_engine.cost_vector import CostVector
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.adapters.residency import AdapterResidency
from lorikeet_engine.memory.kv.manager import KvManager
from lorikeet_engine.memory.ledger import MemoryState
from lorikeet_engine.scheduling.batching.batch import Batch
from lorikeet_engine.scheduling.counters import SchedulerCounters
from lorikeet_engine.scheduling.request import Request


@dataclass(slots=True)
class _Shared:
    """An adapter as long as requests run on it.

    Attributes:
        part_s: the part that each of them has of the time, all their turns added up; until `changed_s`.
        row_bytes: what one row of each step so far has read of it.
    """

    n_bytes: int
    token_flops: int
    changed_s: float
    n_users: int = 0
    part_s: float = 0.0
    row_bytes: float = 0.0

    def bring_forward(self, now_s: float) -> None:
        if self.n_users:
            self.part_s += (now_s - self.changed_s) / self.n_users
        self.changed_s = now_s


@dataclass(slots=True)
class _Meter:
    """A running request's marks: what the sums that it has a part of were when it came to share in them.

    Attributes:
        answers_from: tokens that were computed when its run of answer rows began; None while it computes its prompt.
        row_bytes, adapter_row_bytes: since then; `adapter_s` since it runs.
    """

    adapter_s: float = 0.0
    answers_from: int | None = None
    row_bytes: float = 0.0
    adapter_row_bytes: float = 0.0


class Costing:
    """Fills `Request.cost` and the totals. `enter` and `leave` are called for every stay among the running."""

    def __init__(
        self,
        cost: ModelCost,
        kv: KvManager,
        residency: AdapterResidency,
        counters: SchedulerCounters,
        *,
        itemsize: int,
    ) -> None:
        self._cost = cost
        self._kv = kv
        self._residency = residency
        self._counters = counters
        self._itemsize = itemsize
        self._totals = CostVector()
        self._meters: dict[str, _Meter] = {}
        self._shared: dict[AdapterKey, _Shared] = {}
        self._row_bytes = 0.0  # what one answer row of each step so far has read of what all rows share
        self._gone: list[Request] = []  # since the step was planned: the scheduler allows it, the loop holds it back
        self._now = 0.0
        self._passed_s = 0.0

    def totals(self) -> CostVector:
        """Of everything since the start, what still runs included."""
        return replace(self._totals, swap_bytes=float(self._counters.swap_bytes.total()))

    def pass_time(self, now: float) -> None:
        """Until now everything was held as it is; to be called before that changes."""
        seconds = now - self._now
        if seconds <= 0.0:
            return
        self._totals.kv_byte_seconds += self._kv.ledger.held_or_promised * seconds
        self._totals.adapter_byte_seconds += self._residency.ledger[MemoryState.USED] * seconds
        self._now = now
        self._passed_s += seconds
        self._kv.pass_time(seconds)

    def enter(self, request: Request, *, is_placing: bool) -> None:
        """It runs from now on; with `is_placing` its adapter is copied into the arena for its sake."""
        meter = self._meters[request.request_id] = _Meter()
        key = request.adapter
        if key is None:
            return
        shared = self._shared.get(key)
        if shared is None:
            n_bytes = self._residency.n_bytes_of(key)
            token_flops = lora_row_flops(n_bytes, itemsize=self._itemsize)
            shared = self._shared[key] = _Shared(n_bytes, token_flops, self._passed_s)
        if is_placing:
            request.cost.load_bytes += shared.n_bytes
        shared.bring_forward(self._passed_s)
        shared.n_users += 1
        meter.adapter_s = shared.part_s

    def leave(self, request: Request) -> None:
        """It ends or gives way, and holds its blocks and its adapter for the last time."""
        meter = self._meters.pop(request.request_id)
        self._gone.append(request)
        request.n_reached = max(request.n_reached, request.n_computed)
        request.cost.kv_byte_seconds += self._kv.block_seconds(request.request_id) * self._kv.block_bytes
        shared = self._shared[request.adapter] if request.adapter else None
        if meter.answers_from is not None:
            read, adapter_flops = self._row_bytes - meter.row_bytes, 0
            if shared is not None:
                read += shared.row_bytes - meter.adapter_row_bytes
                adapter_flops = shared.token_flops
            self._charge_answer(request, meter.answers_from, request.n_computed, adapter_flops, read)
        if shared is not None:
            shared.bring_forward(self._passed_s)
            request.cost.adapter_byte_seconds += (shared.part_s - meter.adapter_s) * shared.n_bytes
            shared.n_users -= 1
            if not shared.n_users:
                assert request.adapter is not None
                del self._shared[request.adapter]

    def start_step(self, batch: Batch) -> None:
        """The step is planned."""
        self._gone.clear()
        for placement in batch.placements:
            self._totals.load_bytes += self._residency.n_bytes_of(placement.key)

    def charge(self, batch: Batch, shape: StepShape) -> None:
        """The step is done, and nothing of it taken over yet."""
        cost, n_tokens = self._cost, shape.n_decode + shape.n_prefill
        if not n_tokens:
            return
        token_bytes = cost.layer_bytes / n_tokens + cost.embedding_bytes
        sample_bytes = cost.head_bytes / shape.n_sampled if shape.n_sampled else 0.0
        row_bytes = token_bytes + sample_bytes
        lora_flops, lora_bytes = self._share_adapters(batch)
        if shape.n_decode:
            self._row_bytes += row_bytes
            self._leave_out(batch, row_bytes)
        for request in self._gone:
            if batch.has_decode(request):
                start, (flops, part) = request.n_computed, self._on_token(batch, request)
                self._charge_answer(request, start, start + 1, flops, row_bytes + part)
        for request, n, _ in batch.prefills:
            flops, part = self._on_token(batch, request)
            self._charge_prompt(request, n, flops, token_bytes + part, sample_bytes)
        self._add_up(shape, lora_flops, shape.n_decode * row_bytes + lora_bytes)

    def _share_adapters(self, batch: Batch) -> tuple[int, float]:
        """Divide each adapter among its tokens; the answer is what comes to answer rows, in FLOPs and in bytes."""
        lora_flops, lora_bytes, shared_by = 0, 0.0, self._shared.get
        for key, (n_bytes, n_decode, n_prefill) in batch.adapters.items():
            part = n_bytes / (n_decode + n_prefill)
            if shared := shared_by(key):
                shared.row_bytes += part
            if n_decode:
                flops = shared.token_flops if shared else lora_row_flops(n_bytes, itemsize=self._itemsize)
                lora_flops += n_decode * flops
                lora_bytes += n_decode * part
        return lora_flops, lora_bytes

    def _on_token(self, batch: Batch, request: Request) -> tuple[int, float]:
        """What the request's adapter adds to one of its tokens in the step: FLOPs, and bytes read."""
        if request.adapter is None:
            return 0, 0.0
        rows = batch.adapters[request.adapter]
        return lora_row_flops(rows.n_bytes, itemsize=self._itemsize), rows.n_bytes / (rows.n_decode + rows.n_prefill)

    def _add_up(self, shape: StepShape, lora_flops: int, shared_bytes: float) -> None:
        """The step in the totals; what adapters and shared reads of the answer rows come to is given."""
        cost, totals = self._cost, self._totals
        work = step_work(cost, shape)
        flops = 2 * (cost.layer_params + cost.head_params) * shape.n_decode + lora_flops
        flops += cost.attention_flops_per_pair * shape.decode_context
        read = shared_bytes + cost.kv_bytes_per_token * shape.decode_context
        totals.decode_flops += flops
        totals.prefill_flops += work.flops - flops
        totals.decode_read_bytes += read
        totals.prefill_read_bytes += work.read_bytes - read
        totals.write_bytes += work.write_bytes

    def _leave_out(self, batch: Batch, row_bytes: float) -> None:
        """Those whose answer had no row in the step, for want of a block, have no part in it."""
        for request in batch.passed_over:
            if meter := self._meters.get(request.request_id):
                meter.row_bytes += row_bytes
                if request.adapter in batch.adapters:
                    meter.adapter_row_bytes += self._on_token(batch, request)[1]

    def _charge_prompt(
        self, request: Request, n: int, adapter_flops: int, token_bytes: float, sample_bytes: float
    ) -> None:
        """`n` tokens of a prompt, or of what is computed again; with the last one its run of answer rows begins."""
        model, cost, start = self._cost, request.cost, request.n_computed
        samples = start + n == len(request.tokens)
        token_flops = 2 * model.layer_params + adapter_flops
        pair = model.attention_flops_per_pair
        cost.prefill_flops += n * token_flops + pair * _pairs(start, n) + 2 * model.head_params * samples
        cost.prefill_read_bytes += n * token_bytes + model.kv_bytes_per_token * start
        cost.write_bytes += n * model.kv_bytes_per_token
        n_again = min(start + n, request.n_reached) - start
        if n_again > 0:
            wasted = n_again * token_flops + pair * _pairs(start, n_again)
            cost.wasted_flops += wasted
            self._totals.wasted_flops += wasted
        cost.prefill_read_bytes += sample_bytes * samples
        n_left = len(request.tokens) - start - n
        is_answer_next = samples or (
            n_left == 1 and request.n_output > 0
        )  # then a chunk may end before the newest token
        if is_answer_next and (meter := self._meters.get(request.request_id)):
            meter.answers_from = start + n
            meter.row_bytes = self._row_bytes
            meter.adapter_row_bytes = self._shared[request.adapter].row_bytes if request.adapter else 0.0

    def _charge_answer(self, request: Request, start: int, stop: int, adapter_flops: int, read_bytes: float) -> None:
        """The answer rows that computed the tokens from `start` to `stop`, which read so much of what is shared."""
        n = stop - start
        if not n:
            return
        model, cost = self._cost, request.cost
        n_pairs = _pairs(start, n)
        token_flops = 2 * (model.layer_params + model.head_params) + adapter_flops
        cost.decode_flops += n * token_flops + model.attention_flops_per_pair * n_pairs
        cost.decode_read_bytes += read_bytes + model.kv_bytes_per_token * n_pairs
        cost.write_bytes += n * model.kv_bytes_per_token


def _pairs(start: int, n: int) -> int:
    """(query, key) pairs of `n` tokens behind `start` others."""
    return n * start + n * (n + 1) // 2
