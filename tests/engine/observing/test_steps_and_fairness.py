"""Single steps are kept by kind, and fairness is that of the last minute."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorikeet_engine.memory.ledger import MemoryState
from lorikeet_engine.observing.fairness import EVERY_S, WINDOW_S, ServiceWindow
from lorikeet_engine.observing.observer import NOT_OBSERVED
from lorikeet_engine.observing.steps import KEPT, StepBook, StepRecord
from lorikeet_engine.scheduling.counters import TenantLoad
from lorikeet_engine.scheduling.plan import Phase
from tests.support.scripted_engine_parts import request
from tests.support.stepped_engine import stepped_engine

NEVER = float("-inf")


def step(end_s: float, kind: str = "decode") -> StepRecord:
    return StepRecord(end_s, kind, 0.01, *[0] * 11)


def load(tenant: str, received: float, *, waiting: int = 1) -> TenantLoad:
    return TenantLoad(tenant, waiting, 1, received, 1.0, received=received)


# -- steps -------------------------------------------------------------------------------------------------------------


def test_many_decode_steps_do_not_push_out_the_few_that_computed_prompts() -> None:
    book = StepBook(("prefill", "decode"))
    for i in range(5):
        book.add(step(float(i), "prefill"))
    for i in range(5, 5 + 3 * KEPT):
        book.add(step(float(i)))
    kept = book.after(NEVER)
    assert [one.end_s for one in kept if one.kind == "prefill"] == [0, 1, 2, 3, 4]
    assert len(kept) == KEPT + 5
    assert (book.by_kind["decode"].total, book.by_kind["prefill"].total) == (3 * KEPT, 5)


@given(
    st.lists(st.tuples(st.floats(0, 1), st.sampled_from(["prefill", "decode", "mixed"])), max_size=60), st.floats(0, 40)
)
def test_the_newest_steps_come_in_order_and_none_twice(gaps: list[tuple[float, str]], after_s: float) -> None:
    book, now, steps = StepBook(("prefill", "decode", "mixed")), 0.0, []
    for gap, kind in gaps:
        now += gap
        steps.append(step(now, kind))
        book.add(steps[-1])
    found = book.after(after_s)
    assert [one.end_s for one in found] == [one.end_s for one in steps if one.end_s > after_s]
    assert book.after(now) == []


def test_a_kept_step_says_what_was_planned_and_what_it_met() -> None:
    engine = stepped_engine(n_blocks=65, max_num_seqs=2)
    for name in ("a", "b", "c"):
        engine.submit(request(name, n_prompt=6, max_tokens=5, adapter="red"))
    records, used = [], []
    while engine.loop.has_work:
        n_plans = len(engine.plans)
        engine.step()
        if len(engine.plans) > n_plans:
            records = engine.loop.observer.steps_after(NEVER)
            used.append(records[-1].kv_used_bytes)
    assert len(records) == len(engine.plans)
    for record, plan in zip(records, engine.plans, strict=True):
        decodes = [row for row in plan.rows if row.phase is Phase.DECODE]
        chunks = [row for row in plan.rows if row.phase is Phase.PREFILL]
        assert (record.n_decode, record.n_prefill) == (len(decodes), sum(len(row.token_ids) for row in chunks))
        assert record.decode_context == sum(row.start + 1 for row in decodes)
        assert record.n_sampled == sum(row.samples for row in plan.rows)
        assert (record.lora_bytes > 0, record.seconds) == (True, 1.0)
    assert records[0].running + records[0].waiting == 3
    assert engine.loop.observer.observed(0.0).kv_peak_bytes == max(used) > 0
    assert engine.kv.ledger[MemoryState.USED] == 0


# -- fairness ----------------------------------------------------------------------------------------------------------


def window(*looks: Sequence[TenantLoad]) -> float:
    service = ServiceWindow()
    for i, loads in enumerate(looks):
        service.look(i * EVERY_S, lambda loads=loads: loads)  # type: ignore[misc]
    return service.fairness((len(looks) - 1) * EVERY_S)


def test_equal_service_for_those_that_compete_is_fair() -> None:
    assert window([load("a", 5), load("b", 900)], [load("a", 25), load("b", 920)]) == 1.0


def test_one_of_two_that_gets_everything_is_half() -> None:
    assert window([load("a", 0), load("b", 0)], [load("a", 50), load("b", 0)]) == 0.5


def test_who_asks_for_little_is_not_treated_badly() -> None:
    looks = [[load("a", 0), load("b", 0, waiting=0)], [load("a", 500), load("b", 1, waiting=0)]]
    assert window(*looks) == 1.0
    came_later = [[load("a", 0)], [load("a", 100), load("b", 0)], [load("a", 200), load("b", 1)]]
    assert window(*came_later) == 1.0


def test_what_was_a_minute_ago_counts_no_more() -> None:
    service = ServiceWindow()
    service.look(0.0, lambda: [load("a", 0), load("b", 0)])
    service.look(EVERY_S, lambda: [load("a", 900), load("b", 0)])
    assert service.fairness(EVERY_S) == 0.5
    for i in range(1, 4):
        service.look(WINDOW_S + i * EVERY_S, lambda i=i: [load("a", 900 + i), load("b", i)])  # type: ignore[misc]
    assert service.fairness(WINDOW_S + 3 * EVERY_S) == 1.0
    assert service.fairness(10 * WINDOW_S) == 1.0


def test_looks_are_rare_however_often_it_is_called() -> None:
    service, n_looks = ServiceWindow(), 0

    def tenants() -> list[TenantLoad]:
        nonlocal n_looks
        n_looks += 1
        return []

    for i in range(1000):
        service.look(i * EVERY_S / 100, tenants)
    assert n_looks == 10


def test_weights_are_kept_on_a_crowded_engine() -> None:
    engine = stepped_engine(n_blocks=129, max_num_seqs=4, max_queued_requests=1000)
    for i in range(60):
        for tenant, weight in (("anna", 1.0), ("ben", 3.0)):
            engine.submit(request(f"{tenant}{i}", tenant=tenant, weight=weight, max_tokens=6))
    engine.step(60)
    assert engine.loop.observer.observed(engine.now).fairness == pytest.approx(1.0, abs=0.05)


def test_a_tenant_that_was_lifted_has_not_received_that() -> None:
    engine = stepped_engine(max_num_seqs=1)
    engine.submit(request("a", tenant="anna", max_tokens=30))
    engine.step(20)
    engine.submit(request("b", tenant="ben"))
    loads = {load.tenant: load for load in engine.scheduler.tenants()}
    assert loads["ben"].received == 0 < loads["ben"].service
    assert loads["anna"].received == loads["anna"].service > 0


def test_who_does_not_observe_knows_nothing() -> None:
    assert NOT_OBSERVED.observed(0.0).bins == []
    assert (NOT_OBSERVED.steps_after(NEVER), NOT_OBSERVED.prompts(5, lambda _: 0)) == ([], [])
