"""The two machines in each other's way: prompts that stall answers, answers that starve prompts, and tails."""

from __future__ import annotations

from statistics import fmean, median
from typing import Final

from lorikeet_engine.stats import StepSample
from lorikeet_platform.doctor.evidence import words
from lorikeet_platform.doctor.evidence.arrivals import dispersion
from lorikeet_platform.doctor.evidence.observed import lengths
from lorikeet_platform.doctor.examined import Seen
from lorikeet_platform.doctor.schemas import Cost, Evidence, Finding
from lorikeet_platform.engine_watch.latency import quantile, spread_of
from lorikeet_platform.engine_watch.performance import interference
from lorikeet_platform.engine_watch.report import setting_name
from lorikeet_platform.engine_watch.schemas import Measure

LEAST_STEPS: Final = 20  # that decode, before their usual time is known
LONG_TOKENS: Final = 256  # computed at once; on a slow machine fewer take as long as many answers' tokens, too
STALL_S: Final = 0.25  # what a reader notices
STALL_FACTOR: Final = 8.0  # a step beside a prompt that takes so many times a decode step's time stalls its answers
LEAST_STALLS: Final = 2
EXPECTED_FACTOR: Final = 4.0  # and so many times by what most such steps take for a token
STALLED_SHARE: Final = 0.2  # of the time that answers were being made
ALLOWED_FACTOR: Final = 4.0  # what a lower budget aims at

LEAST_PROMPTS: Final = 5
STARVED_FACTOR: Final = 2.0  # prompts take so many times what they would take alone
FULL_SHARE: Final = 0.5  # of the steps with prompts: their budget is used up, most of it by decodes
FEW_CHUNKS: Final = 4.0
NORMAL_RATE: Final = 10.0  # a first token that takes so many tokens' time is slow

LEAST_FIRST_TOKENS: Final = 100
LEAST_GAPS: Final = 500
TAIL_FACTOR: Final = 8.0  # p99 over p50
OUT_OF_LINE: Final = 3.0  # p99 over what an answer waits for a short prompt; that wait no setting takes away
TAIL_S: Final[dict[Measure, float]] = {"ttft": 1.0, "itl": 0.25}


def long_prompt(seen: Seen) -> Finding | None:
    """Steps with a large piece of a prompt take many times as long as those that only decode."""
    steps = seen.window.steps
    decodes = [step.seconds for step in steps if step.kind == "decode"]
    if len(decodes) < LEAST_STEPS:
        return None
    usual_s, long = median(decodes), [step for step in steps if _has_long_prompt(step)]
    # A busy machine makes single steps long, too; then most of the others with as many tokens are not.
    token_s = median((step.seconds - usual_s) / step.n_prefill for step in long) if long else 0.0
    least_s = max(STALL_S, STALL_FACTOR * usual_s)
    expected_s = EXPECTED_FACTOR * max(usual_s, _beside_small_pieces(seen))
    stalls = [
        step
        for step in long
        if step.n_decode and step.seconds >= least_s and usual_s + token_s * step.n_prefill >= expected_s
    ]
    answered_s = sum(step.seconds * step.n_decode for step in steps)
    lost_s = sum((step.seconds - usual_s) * step.n_decode for step in stalls)
    if len(stalls) < LEAST_STALLS or lost_s < STALLED_SHARE * answered_s:
        return None
    remedy, setting = _smaller_pieces(seen, usual_s, token_s)
    if setting is None:
        return None
    worst = max(stalls, key=lambda step: step.seconds)
    itl, share = spread_of(seen.window, "itl"), lost_s / answered_s
    return Finding(
        rule="long_prompt",
        severity="critical" if worst.seconds >= 1.0 else "warning",
        title="Long prompts stall everybody's answers",
        explanation="A step computes prompt tokens and the answers' next ones together, so all wait for the prompt.",
        evidence=[
            Evidence(label="a step that only decodes", value=words.seconds(usual_s)),
            Evidence(
                label="the longest beside a prompt",
                value=f"{words.seconds(worst.seconds)} with {worst.n_prefill:,} prompt tokens",
            ),
            Evidence(label="such steps", value=words.count(len(stalls))),
            Evidence(label="answers that wait for one", value=words.count(fmean(step.n_decode for step in stalls))),
            Evidence(label="between two tokens, p50 and p99", value=_pair(quantile(itl, 0.5), quantile(itl, 0.99))),
            Evidence(label="chunked prefill", value="on" if seen.design.knobs["enable_chunked_prefill"] else "off"),
            Evidence(label="max_num_batched_tokens", value=words.count(seen.knob("max_num_batched_tokens"))),
        ],
        cost=Cost(text=f"{words.percent(share)} of the time in which answers are made, they stand still", share=share),
        remedy=remedy,
        setting=setting,
    )


def prefill_starved(seen: Seen) -> Finding | None:
    """First tokens are slow although tokens then come at a normal rate: decodes leave prompts too little of a step."""
    window, budget, block_size = seen.window, seen.knob("max_num_batched_tokens"), seen.design.block_size
    mixed = [step for step in window.steps if step.n_prefill and step.n_decode]
    ttft, itl, prefill, queue = (spread_of(window, name) for name in ("ttft", "itl", "prefill", "queue"))
    if min(ttft.count, prefill.count) < LEAST_PROMPTS or not mixed or not itl.count:
        return None
    full = [step for step in mixed if step.n_prefill + step.n_decode > budget - block_size]
    decoding, piece = fmean(step.n_decode for step in mixed), fmean(step.n_prefill for step in mixed)
    chunks = lengths(window).prompt / piece
    is_starved = decoding > piece or decoding >= budget / 2
    if len(full) < FULL_SHARE * len(mixed) or not is_starved or chunks < FEW_CHUNKS:
        return None
    if quantile(ttft, 0.5) < NORMAL_RATE * quantile(itl, 0.5):
        return None
    slower = interference(window, seen.design)
    if slower is not None and slower < STARVED_FACTOR:
        return None
    wanted = _up_to_blocks(decoding + max(lengths(window).prompt / 2, budget), block_size)
    share = min(1.0, (queue.mean_s + prefill.mean_s) / ttft.mean_s)
    return Finding(
        rule="prefill_starved",
        severity="warning",
        title="Prompts starve beside running answers",
        explanation="Answers take their tokens of a step first; what the budget leaves gives prompts small pieces.",
        evidence=[
            Evidence(label="time to the first token, mean", value=words.seconds(ttft.mean_s)),
            Evidence(label="of it in the queue", value=words.percent(queue.mean_s / ttft.mean_s)),
            Evidence(label="of it computing the prompt", value=words.percent(prefill.mean_s / ttft.mean_s)),
            Evidence(label="between two tokens, mean", value=words.seconds(itl.mean_s)),
            Evidence(label="steps a prompt", value=f"{chunks:.1f}"),
            Evidence(label="a step beside answers", value=f"{decoding:.0f} answers, {piece:.0f} prompt tokens"),
            Evidence(label="max_num_batched_tokens", value=words.count(budget)),
            *([] if slower is None else [Evidence(label="slower than alone", value=f"{slower:.1f} times")]),
        ],
        cost=Cost(text=f"{words.percent(share)} of the time to the first token is queue and prompt", share=share),
        remedy="Raise the tokens of a step, so that prompts go on beside the answers.",
        setting=f"{setting_name('max_num_batched_tokens')}={wanted}",
    )


def tail_latency(seen: Seen) -> Finding | None:
    """Means look good, and one request in a hundred waits many times as long."""
    return _tail(seen, "ttft", LEAST_FIRST_TOKENS) or _tail(seen, "itl", LEAST_GAPS)


def _tail(seen: Seen, measure: Measure, least: int) -> Finding | None:
    spread = spread_of(seen.window, measure)
    if spread.count < least:
        return None
    p50, p90, p99 = (quantile(spread, share) for share in (0.5, 0.9, 0.99))
    if p99 < TAIL_FACTOR * p50 or p99 < TAIL_S[measure]:
        return None
    if measure == "itl" and p99 < OUT_OF_LINE * _beside_short_prompts(seen):
        return None
    name = "the first token" if measure == "ttft" else "the next token"
    burstiness = dispersion(seen.window)
    bursts = [] if burstiness is None else [Evidence(label="arrivals: variance over mean", value=f"{burstiness:.1f}")]
    cause = "Arrivals come in bursts" if burstiness is not None and burstiness > 2 else "Arrivals are even"
    return Finding(
        rule="tail_latency",
        severity="warning",
        title=f"A good mean hides a long wait for {name}",
        explanation=f"{cause} (1 is a steady stream of independent requests); look at percentiles, not at the mean.",
        evidence=[
            Evidence(label="mean", value=words.seconds(spread.mean_s)),
            *(
                Evidence(label=label, value=words.seconds(value))
                for label, value in (("p50", p50), ("p90", p90), ("p99", p99))
            ),
            Evidence(label="measured", value=words.count(spread.count)),
            *bursts,
        ],
        cost=Cost(text=f"one in a hundred waits {p99 / p50:.0f} times as long as most", share=0.01),
        remedy="Repeat real arrivals with `lorikeet bench serve` before choosing limits, and size for the p99.",
        setting=None,
    )


def _has_long_prompt(step: StepSample) -> bool:
    """Whether it computes many tokens of a prompt that is long; many short prompts at once are none.

    A token of a prompt of n looks at n / 2 others on average.
    """
    is_large = step.n_prefill >= LONG_TOKENS and step.n_prefill > step.n_decode
    return is_large and 2 * step.prefill_pairs >= LONG_TOKENS * step.n_prefill


def _beside_small_pieces(seen: Seen) -> float:
    """What a step takes beside a block or two of a prompt: no smaller budget makes it shorter. 0 if there are none."""
    most = 2 * seen.design.block_size
    small = [step.seconds for step in seen.window.steps if step.n_decode and 0 < step.n_prefill <= most]
    return median(small) if len(small) >= LEAST_STALLS else 0.0


def _beside_short_prompts(seen: Seen) -> float:
    """What a step takes beside prompts none of which is long; 0 if there are hardly any."""
    steps = [step for step in seen.window.steps if step.n_decode and step.n_prefill and not _has_long_prompt(step)]
    return median(step.seconds for step in steps) if len(steps) >= LEAST_STALLS else 0.0


def _smaller_pieces(seen: Seen, usual_s: float, token_s: float) -> tuple[str, str | None]:
    """Chunks where there are none; or a budget that keeps a step to a few times a decode step's time."""
    if not seen.design.knobs["enable_chunked_prefill"]:
        text = "Compute long prompts in pieces beside the answers."
        return text, f"{setting_name('enable_chunked_prefill')}=true"
    budget, block_size = int(seen.knob("max_num_batched_tokens")), seen.design.block_size
    least = seen.design.max_num_seqs + block_size
    wanted = max(least, min(int(ALLOWED_FACTOR * usual_s / token_s), budget // 2) // block_size * block_size)
    text = f"Compute fewer tokens a step: {wanted} keep it near {ALLOWED_FACTOR:.0f} times a step that only decodes."
    return text, f"{setting_name('max_num_batched_tokens')}={wanted}" if wanted < budget else None


def _up_to_blocks(n_tokens: float, block_size: int) -> int:
    return -(-int(n_tokens) // block_size) * block_size


def _pair(first: float, second: float) -> str:
    return f"{words.seconds(first)} and {words.seconds(second)}"
