"""Whatever arrives, on however small an engine: nothing leaks, nobody starves, every answer is right.

The machine below submits, forks, aborts, retires and steps; `Harness` checks every invariant after each step. Time is
counted in steps.
"""

from __future__ import annotations

from typing import ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from lorikeet_engine.errors import AdapterRetired, ContextLengthExceeded, Overloaded
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.scheduling.limits import SchedulerLimits
from tests.support.scheduling_harness import Harness
from tests.support.scripted_engine_parts import request, scripted_engine

BLOCK, MAX_PROMPT, MAX_TOKENS = 4, 20, 24
AGING, BARRIER = 40.0, 12.0
ADAPTERS = ("", "", "red", "green", "blue", "white", "bad")
TENANTS = ("anna", "ben", "carl")
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
    }
)


def harness_of(choice: dict[str, object]) -> Harness:
    seats, spare = choice["max_num_seqs"], choice["spare_tokens"]
    assert isinstance(seats, int)
    assert isinstance(spare, int)
    engine_names = ("n_blocks", "n_host_slots", "enable_prefix_caching", "arena_grains", "host_grains", "load_delay")
    memory = {name: choice[name] for name in (*engine_names, "max_loading")}
    limits = {
        "max_model_len": 64,
        "max_num_seqs": seats,
        "max_num_batched_tokens": seats + spare,
        "max_adapters_per_step": choice["max_adapters_per_step"],
        "max_queued_requests": 40,
        "preemption": choice["preemption"],
        "locality_quantum": choice["locality_quantum"],
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

    @initialize(choice=engines)
    def build(self, choice: dict[str, object]) -> None:
        self.harness = harness_of(choice)
        self.load_steps = 8 * int(str(choice["load_delay"]))
        self.serial = 0

    @rule(
        n_prompt=st.integers(1, MAX_PROMPT),
        start=st.integers(1, 3),
        max_tokens=st.integers(1, MAX_TOKENS),
        adapter=st.sampled_from(ADAPTERS),
        tenant=st.sampled_from(TENANTS),
        n=st.sampled_from([1, 1, 1, 1, 2, 3]),
    )
    def submit(self, n_prompt: int, start: int, max_tokens: int, adapter: str, tenant: str, n: int) -> None:
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
            self.harness.submit(sequences)
        except ContextLengthExceeded:
            assert self.harness.engine.loop.kv.blocks_for(n_prompt + max_tokens) > self.harness.engine.loop.kv.n_usable
        except Overloaded:
            assert self.harness.engine.loop.scheduler.n_waiting + n > self.harness.limits.max_queued_requests
        except AdapterRetired:
            assert self.harness.engine.loop.residency.retired(AdapterKey(tenant, adapter))

    @rule(n_steps=st.integers(1, 25))
    def step(self, n_steps: int) -> None:
        for _ in range(n_steps):
            self.harness.step()

    @precondition(lambda self: self.harness.unfinished())
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.harness.abort(data.draw(st.sampled_from(self.harness.unfinished())))

    @rule(adapter=st.sampled_from(["red", "green"]), tenant=st.sampled_from(TENANTS))
    def retire(self, adapter: str, tenant: str) -> None:
        self.harness.engine.loop.retire(AdapterKey(tenant, adapter))

    def teardown(self) -> None:
        if not hasattr(self, "harness"):
            return
        self.harness.drain(max_steps=4000)
        bound = starvation_bound(self.harness.limits, self.load_steps)
        late = {name: (wait, rank) for name, (wait, rank) in self.harness.waits.items() if wait > rank * bound}
        assert late == {}, f"beyond {bound} steps a place in the queue"
        for name, error in self.harness.failures.items():
            adapter = self.harness.requests[name].adapter
            assert adapter is not None
            assert adapter.digest == "bad" or isinstance(error, AdapterRetired)
        EngineMachine.steps_in_all += self.harness.n_steps


TestEngineMachine = EngineMachine.TestCase
TestEngineMachine.settings = settings(max_examples=180, stateful_step_count=40, deadline=None)


def test_the_machine_ran_enough_steps_to_mean_something() -> None:
    assert EngineMachine.steps_in_all >= MIN_STEPS
