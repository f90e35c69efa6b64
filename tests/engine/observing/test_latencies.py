"""Every histogram against a count of one's own, on engines where requests fail, expire, give way and are aborted."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lorikeet_engine.errors import EngineError
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.latency_bounds import BOUNDS_S, MEASURES
from lorikeet_engine.observing import observatory as observatory_module
from lorikeet_engine.observing.busiest import FORMER, OTHER, TERM_S
from lorikeet_engine.observing.observatory import Observatory
from lorikeet_engine.observing.observer import Bins, Observed
from lorikeet_engine.scheduling.events import Admitted, RequestFailure, TokenOutput
from lorikeet_engine.scheduling.request import Request
from tests.support.scripted_engine_parts import ScriptedEngine, request, scripted_engine

ADAPTERS = ("", "", "red", "green", "bad")
TENANTS = ("anna", "ben", "carl")
SECONDS = (0.0004, 0.02, 0.3, 7.0, 200.0)

engines = st.fixed_dictionaries(
    {
        "n_blocks": st.integers(10, 20),
        "n_host_slots": st.sampled_from([0, 20]),
        "max_num_seqs": st.integers(1, 5),
        "overlaps": st.booleans(),
        "ttft_deadline_s": st.sampled_from([float("inf"), 3.0]),
    }
)
submits = st.tuples(
    *(st.just("submit"), st.sampled_from(TENANTS), st.sampled_from(ADAPTERS)),
    *(st.integers(1, 12), st.integers(1, 12), st.sampled_from([1, 1, 2])),
)
steps = st.tuples(st.just("step"), st.sampled_from(SECONDS))
mishaps = st.tuples(st.sampled_from(["abort", "fail", "not finite", "retire"]), st.integers(0, 30))
stories = st.lists(st.one_of(submits, steps, steps, steps, mishaps), min_size=5, max_size=60)


@dataclass
class Witness:
    """Drives an engine, and counts by itself what its requests are told, with the times at which they are."""

    engine: ScriptedEngine
    now: float = 0.0
    requests: dict[str, Request] = field(default_factory=dict)
    arrived: dict[str, float] = field(default_factory=dict)
    admitted: dict[str, float] = field(default_factory=dict)
    tokens: dict[str, list[float]] = field(default_factory=dict)
    seconds: dict[tuple[str, str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    began: float | None = None  # of the step in the device's hands

    def submit(self, tenant: str, adapter: str, n_prompt: int, max_tokens: int, n: int) -> None:
        name = f"r{len(self.requests)}"
        together = [
            request(f"{name}#{i}", tenant=tenant, adapter=adapter, prompt=(3,) * n_prompt, max_tokens=max_tokens)
            for i in range(n)
        ]
        try:
            self.engine.loop.submit(together, self.now)
        except EngineError:
            return  # refused: it never was in the queue
        for one in together:
            self.requests[one.request_id] = one
            self.arrived[one.request_id] = self.now

    def step(self, seconds: float) -> None:
        runner, loop = self.engine.runner, self.engine.loop
        end = (self.now if self.began is None else self.began) + seconds
        if self.began is not None:  # a device that is ready before it is asked is heard of late
            end = max(end, self.now)
        runner.step_s, runner.waited_s = seconds, end - self.now
        n_plans = len(runner.plans)
        events = loop.step(self.now)
        for event in events:
            self._hear(event, end)
        if len(runner.plans) > n_plans:  # one ran to its end
            self.now = end
        self.began = self.now if runner.launched else None
        self.now += 0.001

    def _hear(self, event: TokenOutput | RequestFailure | Admitted, end: float) -> None:
        name = event.request_id
        match event:
            case Admitted():
                self.admitted[name] = self.arrived[name] + event.queue_s
                self._count(name, "queue", event.queue_s)
                if self.requests[name].adapter:
                    self._count(name, "adapter_wait", event.adapter_wait_s)
            case TokenOutput():
                earlier = self.tokens.setdefault(name, [])
                if earlier:
                    self._count(name, "itl", end - earlier[-1])
                else:
                    self._count(name, "prefill", end - self.admitted[name])
                    self._count(name, "ttft", end - self.arrived[name])
                earlier.append(end)
                if event.finish_reason:
                    self._count(name, "e2e", end - self.arrived[name])
                    if len(earlier) > 1:
                        self._count(name, "tpot", (end - earlier[0]) / (len(earlier) - 1))

    def _count(self, name: str, measure: str, seconds: float) -> None:
        one = self.requests[name]
        self.seconds[measure, "kind", "adapter" if one.adapter else "base"].append(seconds)
        self.seconds[measure, "tenant", one.tenant].append(seconds)
        if one.adapter:
            self.seconds[measure, "adapter", one.adapter.digest].append(seconds)

    def disturb(self, what: str, which: int) -> None:
        loop, runner, names = self.engine.loop, self.engine.runner, list(self.requests)
        if what == "abort" and names:
            loop.abort(names[which % len(names)])
        elif what == "not finite" and names:
            runner.not_finite.add(names[which % len(names)])
        elif what == "fail":
            runner.fail_next = True
        elif what == "retire":
            loop.retire(AdapterKey(TENANTS[which % 3], "red"), force=which % 2 == 0)


def told(engine: ScriptedEngine) -> tuple[Observatory, Observed]:
    observatory = engine.loop.observer
    assert isinstance(observatory, Observatory)
    return observatory, observatory.observed(0.0)


def assert_same(bins: list[Bins], counted: dict[tuple[str, str, str], list[float]]) -> None:
    found = {(b.measure, b.by, b.label): b for b in bins if b.measure in MEASURES}
    assert {whose for whose, b in found.items() if sum(b.counts)} == set(counted)
    for whose, seconds in counted.items():
        assert sum(found[whose].counts) == len(seconds), whose
        assert found[whose].sum_s == pytest.approx(sum(seconds), abs=1e-6), whose
        near_a_bound = any(abs(each - bound) < 1e-9 for each in seconds for bound in BOUNDS_S)
        if not near_a_bound:
            counts = [0] * (len(BOUNDS_S) + 1)
            for each in seconds:
                counts[bisect_left(BOUNDS_S, each)] += 1
            assert found[whose].counts == counts, whose


@settings(max_examples=150, deadline=None)
@given(engines, stories)
def test_histograms_count_what_requests_were_told_and_when(
    choice: dict[str, Any], story: list[tuple[Any, ...]]
) -> None:
    witness = Witness(scripted_engine(**choice))
    for what, *how in story:
        if what == "submit":
            witness.submit(*how)
        elif what == "step":
            witness.step(*how)
        else:
            witness.disturb(what, *how)
    for _ in range(600):
        if not witness.engine.loop.has_work:
            break
        witness.step(0.02)
    observatory, observed = told(witness.engine)
    assert observatory._latency.n_open == 0, "a request that has ended is still followed"
    assert observatory._latency._owners == {}
    assert_same(observed.bins, witness.seconds)


def test_what_never_got_a_token_leaves_no_time_to_its_first() -> None:
    witness = Witness(scripted_engine(ttft_deadline_s=1.0, max_num_seqs=1))
    witness.submit("anna", "", 4, 30, 1)
    witness.submit("ben", "", 4, 30, 1)
    for _ in range(40):
        witness.step(0.3)
    _, observed = told(witness.engine)
    by_tenant = {(b.measure, b.label) for b in observed.bins if b.by == "tenant"}
    assert witness.engine.loop.scheduler.counters.expired == 1
    assert {label for _, label in by_tenant} == {"anna"}


def test_the_rows_of_a_batch_are_counted_one_by_one() -> None:
    witness = Witness(scripted_engine(n_blocks=80, max_num_batched_tokens=40))
    for tenant in ("anna", "ben"):
        for _ in range(3):
            witness.submit(tenant, "", 2, 5, 1)
    while witness.engine.loop.has_work:
        witness.step(0.1)
    _, observed = told(witness.engine)
    gaps = {b.label: b for b in observed.bins if b.measure == "itl" and b.by != "adapter"}
    assert {label: sum(b.counts) for label, b in gaps.items()} == {"base": 24, "anna": 12, "ben": 12}


def test_every_measure_of_an_answer_on_an_adapter_is_there() -> None:
    witness = Witness(scripted_engine())
    witness.submit("anna", "red", 4, 4, 1)
    while witness.engine.loop.has_work:
        witness.step(0.1)
    _, observed = told(witness.engine)
    assert {b.measure for b in observed.bins if b.label == "red"} == set(MEASURES)


def test_tenants_and_adapters_add_up_to_the_kinds_whoever_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("NAMED_TENANTS", "NAMED_ADAPTERS"):
        monkeypatch.setattr(observatory_module, limit, 2)
    witness = Witness(scripted_engine(n_blocks=65, max_queued_requests=1000))
    draw = random.Random(4)
    for _ in range(120):
        witness.submit(f"t{draw.randrange(6)}", draw.choice(["", "red", "green", "blue"]), 4, draw.randrange(1, 6), 1)
        witness.step(draw.choice([0.02, 0.02, 0.3, TERM_S / 20]))
    while witness.engine.loop.has_work:
        witness.step(0.02)
    _, observed = told(witness.engine)
    labels = {by: {b.label for b in observed.bins if b.by == by} for by in ("tenant", "adapter")}
    assert labels["tenant"] > {OTHER, FORMER}
    assert len(labels["tenant"]) <= 4
    for measure in MEASURES:
        for by, kinds in (("tenant", ("base", "adapter")), ("adapter", ("adapter",))):
            found = [b for b in observed.bins if b.measure == measure and b.by == by]
            counted = [s for kind in kinds for s in witness.seconds[measure, "kind", kind]]
            assert sum(sum(b.counts) for b in found) == len(counted), (measure, by)
            assert sum(b.sum_s for b in found) == pytest.approx(sum(counted)), (measure, by)
