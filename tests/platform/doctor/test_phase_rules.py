"""Prompts that stall answers, answers that starve prompts, and what means hide."""

from __future__ import annotations

from typing import Any

import pytest

from lorikeet_engine.stats import StepSample
from lorikeet_platform.doctor.examined import Seen
from lorikeet_platform.doctor.rules.phases import long_prompt, prefill_starved, tail_latency
from tests.support.seen_engine import a_step, prefix, seen, times

DECODES = [a_step() for _ in range(40)]  # 10 ms each, four answers


def beside_prompt(
    seconds: float, n_prefill: int = 480, n_decode: int = 4, *, n_prompts: int = 1, context: int = 0
) -> StepSample:
    """A step that decodes beside so many equal prompts, all of whose tokens but the cached `context` it computes."""
    each = n_prefill // n_prompts
    return a_step(
        kind="mixed",
        seconds=seconds,
        n_prefill=n_prefill,
        prefill_pairs=n_prompts * (each * context + each * (each + 1) // 2),
        prefill_context=n_prompts * context,
        n_decode=n_decode,
    )


def test_a_whole_prompt_in_one_step_is_found_and_chunks_are_the_remedy() -> None:
    finding = long_prompt(seen(steps=[*DECODES, *[beside_prompt(0.4)] * 3], knobs={"enable_chunked_prefill": False}))
    assert finding is not None
    assert finding.setting == "LORIKEET_ENGINE__ENABLE_CHUNKED_PREFILL=true"
    assert finding.cost.share == pytest.approx(3 * 0.39 / 1.6)
    evidence = {item.label: item.value for item in finding.evidence}
    assert evidence["the longest beside a prompt"] == "400 ms with 480 prompt tokens"
    assert evidence["a step that only decodes"] == "10 ms"


def test_with_chunks_the_remedy_for_long_prompts_is_a_smaller_budget() -> None:
    finding = long_prompt(seen(steps=[*DECODES, *[beside_prompt(0.4)] * 3], knobs={"max_num_batched_tokens": 512}))
    assert finding is not None
    assert finding.setting is not None
    name, _, value = finding.setting.partition("=")
    assert name == "LORIKEET_ENGINE__MAX_NUM_BATCHED_TOKENS"
    assert 12 <= int(value) <= 256  # at least max_num_seqs + block_size, at most half


def test_a_budget_that_cannot_be_lower_is_not_asked_to_be() -> None:
    assert long_prompt(seen(steps=[*DECODES, *[beside_prompt(0.4)] * 3], knobs={"max_num_batched_tokens": 12})) is None


@pytest.mark.parametrize(
    "steps",
    [
        [*DECODES[:19], *[beside_prompt(0.4)] * 3],  # too few to know what is usual
        [*DECODES, beside_prompt(0.4)],  # one is an accident
        [a_step(seconds=0.04)] * 40 + [beside_prompt(0.319)] * 8,  # less than 8 times a decode step
        [*DECODES, *[beside_prompt(0.249)] * 9],  # too short for anybody to see
        [*DECODES, *[beside_prompt(0.4, n_prefill=4)] * 3],  # slow, but not for its prompt
        [*DECODES, *[beside_prompt(0.4, n_prefill=255)] * 3],  # not a long prompt
        [*DECODES, *[beside_prompt(0.4, n_prefill=416, n_prompts=4)] * 3],  # several, none of which is long
        [*DECODES, *[beside_prompt(0.4, n_prefill=104, context=2000)] * 3],  # long, but nearly all of it was cached
        [*DECODES, *[a_step(kind="prefill", seconds=0.4, n_decode=0, n_prefill=64)] * 3],  # nobody waits for it
        [*DECODES * 20, *[beside_prompt(0.1)] * 3],  # a small part of the time
    ],
)
def test_steps_that_stall_nobody_are_no_long_prompts(steps: list[StepSample]) -> None:
    assert long_prompt(seen(steps=steps, knobs={"enable_chunked_prefill": False})) is None


def test_prompts_of_a_hundred_tokens_on_a_slow_machine_are_no_long_prompts() -> None:
    """Two clients and a loaded CPU: a prompt takes as long as many tokens there, and no setting would mend that."""
    steps = [*[a_step(seconds=0.06, n_decode=2)] * 60, *[beside_prompt(0.9, n_prefill=104, n_decode=1)] * 12]
    assert long_prompt(seen(steps=steps, knobs={"max_num_batched_tokens": 512})) is None


def test_steps_that_are_slow_whatever_they_compute_are_no_long_prompts() -> None:
    """Smaller pieces take as long as large ones then."""
    mixed = [beside_prompt(0.4, n_prefill=n) for n in (8, 512)]
    assert long_prompt(seen(steps=[*DECODES, *mixed * 20], knobs={"max_num_batched_tokens": 512})) is None


def test_a_machine_that_is_busy_now_and_then_has_no_long_prompts() -> None:
    mixed = [*[beside_prompt(0.03)] * 4, *[beside_prompt(0.8)] * 3]
    assert long_prompt(seen(steps=[*DECODES, *mixed], knobs={"enable_chunked_prefill": False})) is None


def starved(
    *, ttft_s: float = 1.0, piece: int = 4, decoding: int = 28, prompt: int = 60, budget: int = 32, step_s: float = 0.01
) -> Seen:
    """Prompts that go on by pieces beside so many answers, each of which gets a token every step."""
    steps = [
        a_step(kind="mixed", seconds=step_s, n_prefill=piece, prefill_pairs=piece * 30, n_decode=decoding)
        for _ in range(60)
    ]
    after: dict[str, Any] = {
        "histograms": [
            times("queue", [0.1 * ttft_s] * 10),
            times("prefill", [0.9 * ttft_s] * 10),
            times("ttft", [ttft_s] * 10),
            times("itl", [step_s] * 500),
        ],
        "prefix": prefix(10 * prompt),
        "prompt_tokens_total": 10 * prompt,
        "steps_total": 60,
    }
    return seen(after, steps=steps, knobs={"max_num_batched_tokens": budget})


def test_prompts_that_starve_are_found_with_the_queues_part_of_the_first_token() -> None:
    finding = prefill_starved(starved())
    assert finding is not None
    assert finding.setting == "LORIKEET_ENGINE__MAX_NUM_BATCHED_TOKENS=60"  # 28 answers and one budget more
    evidence = {item.label: item.value for item in finding.evidence}
    assert evidence["of it in the queue"] == "10 %"
    assert evidence["of it computing the prompt"] == "90 %"
    assert evidence["steps a prompt"] == "15.0"
    assert finding.cost.share == pytest.approx(1.0)


@pytest.mark.parametrize(
    "engine",
    [
        starved(ttft_s=0.09),  # as fast as ten tokens
        starved(budget=64),  # half of the steps' budget is left
        starved(prompt=15),  # a prompt takes few steps
        starved(piece=32, decoding=1, prompt=200),  # prompts get nearly all of a step
    ],
)
def test_prompts_that_get_their_part_do_not_starve(engine: Seen) -> None:
    assert prefill_starved(engine) is None


def test_a_long_tail_is_found_with_its_percentiles_and_the_burstiness_of_arrivals() -> None:
    quick, slow = [0.1] * 97, [4.0] * 3
    bursts = [{"refusals": {"tenant_queue": n}} for n in (0, 0, 0, 60, 60, 60, 60)]
    finding = tail_latency(seen({"histograms": [times("ttft", quick + slow)]} | bursts[-1], between=bursts))
    assert finding is not None
    evidence = {item.label: item.value for item in finding.evidence}
    assert evidence["mean"] == "217 ms"
    assert evidence["p99"].endswith(" s")
    assert float(evidence["arrivals: variance over mean"]) > 1
    assert finding.setting is None


@pytest.mark.parametrize(("n_quick", "slow_s"), [(96, 4.0), (97, 0.7)])
def test_few_cases_and_short_waits_have_no_tail(n_quick: int, slow_s: float) -> None:
    """Under 100 first tokens, or a tail of under a second."""
    assert tail_latency(seen({"histograms": [times("ttft", [0.01] * n_quick + [slow_s] * 3)]})) is None


def test_a_tail_between_tokens_is_found_too() -> None:
    finding = tail_latency(seen({"histograms": [times("itl", [0.01] * 980 + [0.7] * 20)]}))
    assert finding is not None
    assert "next token" in finding.title


@pytest.mark.parametrize(
    ("beside", "is_found"),
    [
        (beside_prompt(0.4, n_prefill=104, n_decode=1), False),  # as short prompts take by nature on a slow machine
        (beside_prompt(0.1, n_prefill=104, n_decode=1), True),
        (beside_prompt(0.4), True),  # a long prompt has to be told of
    ],
)
def test_a_wait_that_every_short_prompt_brings_is_no_tail(beside: StepSample, is_found: bool) -> None:
    after = {"histograms": [times("itl", [0.01] * 980 + [0.7] * 20)]}
    assert (tail_latency(seen(after, steps=[*DECODES, *[beside] * 5])) is not None) is is_found
