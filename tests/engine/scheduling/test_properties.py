"""Whatever arrives, on however small an engine: nothing leaks, nobody starves, every answer is right.

The machine below submits, forks, aborts, retires, warms and steps, and lets steps and logits fail; `Harness` checks
every invariant after each step. Time is counted in steps.
"""

from __future__ import annotations

from typing import ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from lorikeet_engine.errors import (
    AdapterRetired,
    AdapterUnavailable,
    ConcurrencyLimited,
    ContextLengthExceeded,
    Overloaded,
    QueueLimited,
)
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.protocol import Cap
from lorikeet_engine.scheduling.limits import SchedulerLimits
from lorikeet_engine.scheduling.request import NEVER
from tests.support.scheduling_harness import Harness
from tests.support.scripted_engine_parts import request, scripted_engine

BLOCK, MAX_PROMPT, MAX_TOKENS = 4, 20, 24
AGING, BARRIER = 40.0, 12.0
ADAPTERS = ("", "", "red", "green", "blue", "white", "bad")
TENANTS = ("anna", "ben", "carl")
SHARES = ("tenant_queue_share", "tenant_seat_share", "tenant_kv_share", "tenant_arena_share")
MAX_MODEL_LEN, MAX_QUEUED = 64, 40
MIN_STEPS = 20_000

engines = st.fixed_dictionaries(
    {
        "n_blocks": st.integers(12, 22),
        "n_host_slots": st.sampled_from([0, 0, 4, 40]),
        "enable_prefix_caching": st.booleans(),
        "arena_grains": st.integers(4, 12),
        "host_grains": st.integers(4, 20),
        "load_delay": st.integers(1, 4),
        "max_loading": st.integers(1, 3),
        "max_num_seqs": st.integers(1, 6),
        "spare_tokens": st.integers(BLOCK, 14),
        "max_adapters_per_step": st.integers(1, 3),
        "preemption": st.sampled_from(["auto", "recompute", "swap"]),
        "locality_quantum": st.sampled_from([0.0, 16.0]),
        "step_s": st.sampled_from([1.0, 1e-6]),  # with quick steps it pays to wait for a request to end
        "enable_chunked_prefill": st.sampled_from([True, True, False]),
        "ttft_deadline_s": st.sampled_from([NEVER, NEVER, 20.0, 60.0]),
        "is_faulty": st.sampled_from([False, False, True]),  # failures empty an engine, and full ones are wanted too
        **{share: st.sampled_from([1.0, 1.0, 1.0, 0.5]) for share in SHARES},
    }
)


def harness_of(choice: dict[str, object]) -> Harness:
    """Without chunks a step has to hold a whole prompt beside a decode for every seat."""
    seats, spare = choice["max_num_seqs"], choice["spare_tokens"]
    assert isinstance(seats, int)
    assert isinstance(spare, int)
    engine_names = ("n_blocks", "n_host_slots", "enable_prefix_caching", "arena_grains", "host_grains", "load_delay")
    memory = {name: choice[name] for name in (*engine_names, "max_loading")}
    limit_names = ("max_num_seqs", "max_adapters_per_step", "preemption", "locality_quantum", "enable_chunked_prefill")
    limits = {
        **{name: choice[name] for name in (*limit_names, "ttft_deadline_s", *SHARES)},
        "max_model_len": MAX_MODEL_LEN,
        "max_num_batched_tokens": seats + (spare if choice["enable_chunked_prefill"] else MAX_MODEL_LEN),
        "max_queued_requests": MAX_QUEUED,
        "barrier_after_s": BARRIER,
        "aging_s": AGING,
    }
    engine = scripted_engine(block_size=BLOCK, **memory, **limits)  # type: ignore[arg-type]
    engine.runner.step_s = float(str(choice["step_s"]))
    return Harness(engine, SchedulerLimits(eos_token_ids=frozenset(), vocab=1, **limits))  # type: ignore[arg-type]


def starvation_bound(limits: SchedulerLimits, load_steps: int) -> float:
    """Steps within which the oldest waiting request starts (engine-design 3.7), however the others behave.

    Once it is the barrier nothing is admitted before it that takes what it lacks. Then at most all seats' requests have
    to end, one after another in the worst case, since the oldest of them is never held up: a prompt takes a step for
    each block at worst, an answer one for each token, and a copy to host memory one more. Its adapter has to be read,
    behind those that are being read.
    """
    one = -(-MAX_PROMPT // BLOCK) + MAX_TOKENS + 4
    return AGING + load_steps + 2 * limits.max_num_seqs * one


class EngineMachine(RuleBasedStateMachine):
    """Small prompts over few letters, so that prefixes are often shared; ids are never used twice."""

    steps_in_all: ClassVar[int] = 0
    bounded_steps: ClassVar[int] = 0  # of engines on which nobody may starve

    @initialize(choice=engines)
    def build(self, choice: dict[str, object]) -> None:
        self.harness = harness_of(choice)
        self.load_steps = 8 * int(str(choice["load_delay"]))
        self.is_faulty = bool(choice["is_faulty"])
        self.serial = 0

    @rule(
        n_prompt=st.integers(1, MAX_PROMPT),
        start=st.integers(1, 3),
        max_tokens=st.integers(1, MAX_TOKENS),
        adapter=st.sampled_from(ADAPTERS),
        tenant=st.sampled_from(TENANTS),
        n=st.sampled_from([1, 1, 1, 1, 2, 3]),
        allowed=st.sampled_from([(99, 99), (99, 99), (99, 99), (4, 99), (99, 3), (0, 1)]),
    )
    def submit(
        self, n_prompt: int, start: int, max_tokens: int, adapter: str, tenant: str, n: int, allowed: tuple[int, int]
    ) -> None:
        self.serial += 1
        name = f"r{self.serial}"
        sequences = [
            request(
                name if index == 0 else f"{name}#{index}",
                prompt=tuple(start + i // BLOCK for i in range(n_prompt)),
                max_tokens=max_tokens,
                adapter=adapter,
                tenant=tenant,
                weight={"anna": 1.0, "ben": 1.0, "carl": 3.0}[tenant],
            )
            for index in range(n)
        ]
        try:
            self.harness.submit(sequences, [Cap(tenant, *allowed), Cap("key", 99, 99)])
        except ContextLengthExceeded:
            kv, share = self.harness.engine.loop.kv, self.harness.limits.tenant_kv_share
            assert kv.blocks_for(n_prompt + max_tokens) > int(share * kv.n_usable)
        except Overloaded as overloaded:
            self.check_refusal(overloaded, tenant, n, allowed)
        except AdapterRetired:
            assert self.harness.engine.loop.residency.retired(AdapterKey(tenant, adapter))
        except AdapterUnavailable:
            assert adapter == "bad"

    def check_refusal(self, error: Overloaded, tenant: str, n: int, allowed: tuple[int, int]) -> None:
        limits, n_waiting = self.harness.limits, self.harness.engine.loop.scheduler.n_waiting
        own = [load.waiting for load in self.harness.engine.loop.scheduler.tenants() if load.tenant == tenant]
        if isinstance(error, ConcurrencyLimited):
            assert self.harness.present(tenant)[0] >= allowed[0]
        elif isinstance(error, QueueLimited):
            assert self.harness.present(tenant)[1] >= allowed[1]
        elif error.reason == "engine_queue":
            assert n_waiting + n > limits.max_queued_requests
        elif error.reason == "tenant_queue":
            assert own[0] + n > limits.tenant_queue_share * limits.max_queued_requests
        else:
            assert limits.ttft_deadline_s < NEVER
        assert error.retry_after_s or allowed == (0, 1)

    @precondition(lambda self: self.is_faulty and self.harness.unfinished())
    @rule(data=st.data())
    def spoil(self, data: st.DataObject) -> None:
        self.harness.spoil(data.draw(st.sampled_from(self.harness.unfinished())))

    @rule(n_steps=st.integers(1, 25), first_fails=st.booleans())
    def step(self, n_steps: int, first_fails: bool) -> None:
        self.harness.step(fails=first_fails and self.is_faulty)
        for _ in range(n_steps - 1):
            self.harness.step()

    @precondition(lambda self: self.harness.unfinished())
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.harness.abort(data.draw(st.sampled_from(self.harness.unfinished())))

    @rule(adapter=st.sampled_from(["red", "green"]), tenant=st.sampled_from(TENANTS), force=st.booleans())
    def retire(self, adapter: str, tenant: str, force: bool) -> None:
        self.harness.retire(AdapterKey(tenant, adapter), force=force)

    @rule(adapter=st.sampled_from(["red", "green", "white", "bad"]), tenant=st.sampled_from(TENANTS))
    def warm(self, adapter: str, tenant: str) -> None:
        self.harness.warm(AdapterKey(tenant, adapter))

    def teardown(self) -> None:
        if not hasattr(self, "harness"):
            return
        self.harness.drain(max_steps=4000)
        limits = self.harness.limits
        if limits.ttft_deadline_s == NEVER and all(getattr(limits, share) == 1.0 for share in SHARES):
            bound = starvation_bound(limits, self.load_steps) + len(self.harness.engine.runner.failed)
            late = {name: (wait, rank) for name, (wait, rank) in self.harness.waits.items() if wait > rank * bound}
            assert late == {}, f"beyond {bound} steps a place in the queue"
            EngineMachine.bounded_steps += self.harness.n_steps
        EngineMachine.steps_in_all += self.harness.n_steps


TestEngineMachine = EngineMachine.TestCase
TestEngineMachine.settings = settings(max_examples=400, stateful_step_count=40, deadline=None)


def test_the_machine_ran_enough_steps_to_mean_something() -> None:
    assert EngineMachine.steps_in_all >= MIN_STEPS
    assert EngineMachine.bounded_steps >= MIN_STEPS // 10
