"""How long deciding takes: `plan` + `commit` under load, and the block manager's small operations.

    python benchmarks/scheduler.py [--quick] [--json FILE]

Thread CPU time of this process alone: the load is 256 running and 10,000 waiting requests of 200 tenants, a tenth of
them with adapters. Medians and p99 are those of the best of five runs, since other work on the machine only adds.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from statistics import median

from figures import Figure, arguments, at_most, present

from lorikeet_engine.cost import DEVICES, ModelCost, load_profile
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.adapters.residency import AdapterResidency
from lorikeet_engine.memory.kv.manager import KvManager
from lorikeet_engine.memory.kv.prefix_index import PrefixChain, prefix_root
from lorikeet_engine.memory.ledger import Owner
from lorikeet_engine.scheduling.limits import SchedulerLimits
from lorikeet_engine.scheduling.plan import SamplingParams, StepPlan, StepResult
from lorikeet_engine.scheduling.request import Request
from lorikeet_engine.scheduling.scheduler import Scheduler

RUNNING, WAITING, TENANTS, ADAPTERS, BLOCK = 256, 10_000, 200, 24, 16
PROMPT, ANSWER = 256, 200
STEP_S = 0.02
COST = ModelCost(
    layer_params=6_500_000_000,
    head_params=545_000_000,
    attention_flops_per_pair=401_000,
    kv_bytes_per_token=57_344,
    layer_bytes=13_000_000_000,
    head_bytes=1_090_000_000,
)


def request(index: int, *, answer: int = ANSWER) -> Request:
    tenant = f"tenant{index % TENANTS}"
    adapter = AdapterKey(tenant, f"adapter{index % TENANTS}") if index % TENANTS < ADAPTERS else None
    return Request(
        request_id=f"r{index}",
        tenant=tenant,
        prompt=tuple((index * 31 + i) % 50_000 for i in range(PROMPT)),
        max_tokens=answer,
        sampling=SamplingParams(),
        adapter=adapter,
    )


def loaded_scheduler() -> tuple[Scheduler, AdapterResidency]:
    """An engine in the middle of its day: all seats taken, answers of all lengths left, a long queue."""
    kv = KvManager(n_blocks=12_000, block_size=BLOCK, block_bytes=BLOCK * 57_344)
    residency = AdapterResidency(n_grains=1 << 20, grain_bytes=32, host_bytes=1 << 30, max_loading=64)
    limits = SchedulerLimits(
        max_model_len=4096,
        max_num_seqs=RUNNING,
        max_num_batched_tokens=2048,
        max_adapters_per_step=64,
        max_queued_requests=2 * WAITING,
        eos_token_ids=frozenset(),
        vocab=50_000,
        locality_quantum=2048,
    )
    scheduler = Scheduler(limits, kv, residency, cost=COST, profile=load_profile(DEVICES / "cpu2.json"))
    for index in range(RUNNING + WAITING):
        answer = 1 + index * 7 % ANSWER if index < RUNNING else ANSWER
        scheduler.submit([request(index, answer=answer)], 0.0)
    return scheduler, residency


def carry_out(plan: StepPlan, residency: AdapterResidency) -> StepResult:
    for placement in plan.placements:
        residency.on_placed(placement.key)
    return StepResult(plan.step_id, {row.request_id: 7 for row in plan.rows if row.samples}, STEP_S)


def load_adapters(residency: AdapterResidency, now: float) -> None:
    for key in residency.take_loads():
        residency.on_loaded(key, 4096, now)


def step_times(n_steps: int) -> list[float]:
    """Seconds of `plan` + `commit` for each of `n_steps` steps after the batch has filled."""
    scheduler, residency = loaded_scheduler()
    times: list[float] = []
    now, next_index, n_waiting = 0.0, RUNNING + WAITING, scheduler.n_waiting
    while len(times) < n_steps:
        load_adapters(residency, now)
        started = time.thread_time()
        plan = scheduler.plan(now)
        planned = time.thread_time()
        assert plan is not None
        result = carry_out(plan, residency)
        resumed = time.thread_time()
        scheduler.commit(plan, result, now + STEP_S)
        ended = time.thread_time()
        if now > 2.0:  # by then all seats are taken
            times.append(planned - started + ended - resumed)
        now += STEP_S
        while scheduler.n_waiting < WAITING <= n_waiting:
            scheduler.submit([request(next_index)], now)
            next_index += 1
    assert scheduler.n_running >= RUNNING - 16, "the batch is not full"
    return times


def per_item(work: Callable[[], int], runs: int) -> float:
    """Seconds an item, the best of `runs`; `work` says how many items it did."""
    best = float("inf")
    for _ in range(runs):
        started = time.thread_time()
        n_items = work()
        best = min(best, (time.thread_time() - started) / n_items)
    return best


def allocate_and_free() -> int:
    """One block at a time, as decoding does: grow a table by one block, and give it back with its request."""
    kv = KvManager(n_blocks=4097, block_size=BLOCK, block_bytes=1024, enable_prefix_caching=False)
    owner, chain = Owner("tenant"), PrefixChain(b"", BLOCK)
    hit = kv.lookup(chain, 1)
    for index in range(64):
        name = f"r{index}"
        kv.admit(name, owner, 1, chain, hit)
        for n_blocks in range(1, 65):
            kv.grow(name, n_blocks * BLOCK)
    for index in range(64):
        kv.release(f"r{index}")
    return 64 * 64


def hash_and_look_up() -> int:
    """The keys of a long prompt, and the walk along a chain whose blocks are all there."""
    n_blocks = 512
    root = prefix_root(model="m", kv_format="bf16", block_size=BLOCK, tenant="t", salt=b"s", adapter=None)
    kv = KvManager(n_blocks=n_blocks + 2, block_size=BLOCK, block_bytes=1024)
    tokens = list(range(n_blocks * BLOCK + 1))
    first = PrefixChain(root, BLOCK)
    kv.admit("r", Owner("t"), len(tokens), first, kv.lookup(first, len(tokens)))
    kv.grow("r", len(tokens))
    kv.commit("r", len(tokens), tokens)
    return _timed_lookup(kv, root, tokens, n_blocks)


def _timed_lookup(kv: KvManager, root: bytes, tokens: list[int], n_blocks: int) -> int:
    for _ in range(20):
        chain = PrefixChain(root, BLOCK)
        chain.extend(tokens, len(tokens))
        assert len(kv.lookup(chain, len(tokens)).blocks) == n_blocks
    return 21 * n_blocks  # with the filling: its keys are hashed and committed once


def measure(*, quick: bool) -> list[Figure]:
    runs, n_steps = (2, 150) if quick else (5, 600)
    medians, tails = [], []
    for _ in range(runs):
        times = sorted(step_times(n_steps))
        medians.append(median(times))
        tails.append(times[int(len(times) * 0.99)])
        gc.collect()
    return [
        at_most("plan + commit, median", min(medians) * 1e3, "ms", 1.5),
        at_most("plan + commit, p99", min(tails) * 1e3, "ms", 4.0),
        at_most("allocate + free a block", per_item(allocate_and_free, runs) * 1e6, "us", 2.0),
        at_most("hash + look up a block", per_item(hash_and_look_up, runs) * 1e6, "us", 3.0),
    ]


def main() -> None:
    options = arguments("How long deciding takes.").parse_args()
    present("Promised and found", measure(quick=options.quick), options.json)


if __name__ == "__main__":
    main()
