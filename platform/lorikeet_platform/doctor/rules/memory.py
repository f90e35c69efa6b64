"""KV memory and seats: preemptions, what they leave behind, and a pool that lies idle while requests wait."""

from __future__ import annotations

from typing import Final

from lorikeet_engine.cost import blocks_for, suggested_max_num_seqs
from lorikeet_platform.doctor.evidence import words
from lorikeet_platform.doctor.evidence.observed import concurrency, kv_share, lengths, stats_of
from lorikeet_platform.doctor.evidence.room import larger_pool
from lorikeet_platform.doctor.examined import Seen
from lorikeet_platform.doctor.schemas import Cost, Evidence, Finding
from lorikeet_platform.engine_watch.latency import spread_of
from lorikeet_platform.engine_watch.report import setting_name

SAFE_LOAD: Final = 0.6  # of the theoretical concurrency, once preemptions were seen
LEAST_PREEMPTIONS: Final = 3
PREEMPTED_SHARE: Final = 0.05  # preemptions for each request that ended
HEAVY_WASTE: Final = 0.2  # of all FLOPs
LOW_SEATS: Final = 0.8  # of max_num_seqs
IDLE_KV: Final = 0.5  # of the pool
MOSTLY: Final = 0.5  # of the window's readings


def preemption(seen: Seen) -> Finding | None:
    """Requests are pushed out of the KV pool and computed or copied again."""
    window, by_mode = seen.window, seen.window.preemptions
    n = by_mode.get("swap", 0) + by_mode.get("recompute", 0)
    n_ended = spread_of(window, "e2e").count
    if n < LEAST_PREEMPTIONS or n < PREEMPTED_SHARE * n_ended:
        return None
    flops, wasted = window.work.flops, window.costs.wasted_flops
    share = min(1.0, wasted / flops) if flops else 0.0
    recomputed = window.after.preemptions.recomputed_tokens - window.before.preemptions.recomputed_tokens
    swapped = sum(window.after.preemptions.swap_bytes.values()) - sum(window.before.preemptions.swap_bytes.values())
    remedy, setting = _fewer_or_more_room(seen)
    return Finding(
        rule="preemption",
        severity="critical" if share >= HEAVY_WASTE else "warning",
        title="Requests push each other out of the KV pool",
        explanation="More requests run than the pool holds to their end, so some are preempted and done again.",
        evidence=[
            Evidence(label="preemptions", value=f"{n} ({by_mode.get('swap', 0)} swapped)"),
            Evidence(label="requests that ended", value=words.count(n_ended)),
            Evidence(label="tokens computed again", value=words.count(recomputed)),
            Evidence(label="copied to and from host memory", value=words.n_bytes(swapped)),
            *_pool(seen),
        ],
        cost=Cost(text=f"{words.percent(share)} of all FLOPs computed again what was there before", share=share),
        remedy=remedy,
        setting=setting,
    )


def seats_lowered(seen: Seen) -> Finding | None:
    """Preemptions have passed, but the engine still runs fewer requests than it may, and some wait for a seat."""
    before, after = seen.window.before, seen.window.after
    if max(before.seats, after.seats) >= LOW_SEATS * after.max_seats or not after.waiting:
        return None
    share = 1 - after.seats / after.max_seats
    remedy, setting = _fewer_or_more_room(seen)
    return Finding(
        rule="seats_lowered",
        severity="warning",
        title="Fewer requests run than are allowed to",
        explanation="The engine lowered the number of seats after preemptions and gives one back every ten seconds.",
        evidence=[
            Evidence(label="seats", value=f"{after.seats} of {after.max_seats}"),
            Evidence(label="waiting requests", value=words.count(after.waiting)),
            *_pool(seen),
        ],
        cost=Cost(text=f"{words.percent(share)} of the seats are closed while requests wait", share=share),
        remedy=remedy,
        setting=setting,
    )


def too_few_seats(seen: Seen) -> Finding | None:
    """Requests wait for a seat while most of the KV pool lies idle."""
    window, design = seen.window, seen.design
    readings = stats_of(window)
    full = [stats for stats in readings if stats.waiting and stats.running >= stats.seats == stats.max_seats]
    held = kv_share(window)
    fits = concurrency(window, design)
    if len(full) <= MOSTLY * len(readings) or held > IDLE_KV or fits is None:
        return None
    suggested = suggested_max_num_seqs(fits)
    budget = int(seen.knob("max_num_batched_tokens"))
    possible = min(suggested, budget - design.block_size)  # every running request decodes one token a step
    if possible <= design.max_num_seqs:
        return None
    waiting = sum(stats.waiting for stats in full) / len(full)
    return Finding(
        rule="too_few_seats",
        severity="warning",
        title="Requests wait for a seat beside an idle KV pool",
        explanation="As many requests run as may, and their keys and values fill only a part of the memory for them.",
        evidence=[
            Evidence(label="running", value=f"{window.after.running} of {design.max_num_seqs} seats"),
            Evidence(label="waiting, while all seats were taken", value=words.count(waiting)),
            Evidence(label="KV pool held", value=words.percent(held)),
            *_pool(seen),
        ],
        cost=Cost(text=f"{words.percent(1 - held)} of the KV pool is never used", share=1 - held),
        remedy="Let more requests run at once: the pool holds them, and a batch shares the reading of the weights.",
        setting=f"{setting_name('max_num_seqs')}={possible}",
    )


def _fewer_or_more_room(seen: Seen) -> tuple[str, str | None]:
    """The remedy for preemptions: fewer seats, or where there are few already, a pool that holds them."""
    fits, design = concurrency(seen.window, seen.design), seen.design
    if fits is None:
        return "Lower max_num_seqs to about 60 % of the requests that the KV pool holds.", None
    seats = max(1, int(SAFE_LOAD * fits))
    if seats < design.max_num_seqs:
        text = f"Run {seats} requests at once, about 60 % of the {fits:.1f} that the pool holds at these lengths."
        return text, f"{setting_name('max_num_seqs')}={seats}"
    n_tokens = round(lengths(seen.window).total)
    needed = int(design.max_num_seqs / SAFE_LOAD) * blocks_for(n_tokens, design.block_size) * design.block_bytes
    setting = larger_pool(seen, "kv_cache_bytes", max(needed, 2 * design.n_blocks * design.block_bytes))
    if setting is None:
        return "Few requests run already, and no memory is left: allow shorter requests, or add an engine.", None
    return "Few requests run already, and their lengths differ much: give the KV pool more room.", setting


def _pool(seen: Seen) -> list[Evidence]:
    fits, mean = concurrency(seen.window, seen.design), lengths(seen.window)
    known = [Evidence(label="mean prompt and answer", value=f"{mean.prompt:.0f} + {mean.output:.0f} tokens")]
    if fits is not None:
        known.append(Evidence(label="such requests that the pool holds", value=f"{fits:.1f}"))
    return [*known, Evidence(label="max_num_seqs", value=str(seen.design.max_num_seqs))]
