"""Adapters that rotate through too little room, read the disk again and again, or make everybody's steps dear."""

from __future__ import annotations

from statistics import median
from typing import Final

from lorikeet_engine.stats import AdapterUse
from lorikeet_platform.doctor.evidence import words
from lorikeet_platform.doctor.evidence.observed import stats_of
from lorikeet_platform.doctor.evidence.room import larger_pool
from lorikeet_platform.doctor.examined import Seen
from lorikeet_platform.doctor.schemas import Cost, Evidence, Finding
from lorikeet_platform.engine_watch.latency import spread_of
from lorikeet_platform.engine_watch.report import setting_name

LEAST_LOADS: Final = 6
RELOADED: Final = 1.5  # loads for each adapter in use
WAITED_SHARE: Final = 0.05  # of the time to the first token
SPARE: Final = 1.1  # room beside the working set, since extents lie in one piece
MOSTLY: Final = 0.5

LEAST_ADAPTERS: Final = 2
HUGE: Final = 4.0  # times the median of the others
DEAR: Final = 0.1  # of all bytes that steps read
UNFAIR: Final = 2.0  # part of the bytes over part of the tokens
NAMED: Final = 3


def adapter_thrash(seen: Seen) -> Finding | None:
    """More adapters are in use than the arena holds, so the same ones are evicted and loaded again."""
    window = seen.window
    n_loads, n_evicted = (
        sum(window.loads.values()),
        window.evictions.get("room", 0) + window.evictions.get("barrier", 0),
    )
    if n_loads < LEAST_LOADS or 2 * n_evicted < n_loads:
        return None
    active = _active(seen)
    working, arena = _working_set(active), window.after.arena.capacity
    if n_loads < RELOADED * len(active) or working <= arena:
        return None
    stall_s = window.after.adapter_traffic.stall_s - window.before.adapter_traffic.stall_s
    ttft, waited = spread_of(window, "ttft", "adapter"), spread_of(window, "adapter_wait", "adapter")
    share = min(1.0, stall_s / ttft.sum_s) if ttft.sum_s else 0.0
    return Finding(
        rule="adapter_thrash",
        severity="critical" if share >= MOSTLY else "warning",
        title="Adapters push each other out of the arena",
        explanation="The adapters in use need more room than there is, and requests wait while theirs comes back.",
        evidence=[
            Evidence(label="loads", value=words.per_minute(n_loads, window.seconds)),
            Evidence(label="evictions for want of room", value=words.count(n_evicted)),
            Evidence(label="adapters in use", value=f"{len(active)}, {words.n_bytes(working)}"),
            Evidence(label="arena", value=words.n_bytes(arena)),
            Evidence(label="requests waited for nothing else", value=words.seconds(stall_s)),
            Evidence(label="each of them, mean", value=words.seconds(waited.mean_s)),
            *_most_loaded(seen),
        ],
        cost=Cost(text=f"{words.percent(share)} of the time to the first token is waiting for adapters", share=share),
        remedy="Make the arena hold the adapters in use; or send each tenant's requests to one of several engines.",
        setting=larger_pool(seen, "adapter_pool_bytes", SPARE * working),
    )


def host_cache(seen: Seen) -> Finding | None:
    """Adapters that come back are read from the disk again: host memory did not keep them."""
    window = seen.window
    n_disk, host = window.loads.get("disk", 0), window.after.host.capacity
    if n_disk < LEAST_LOADS:
        return None
    active = _active(seen)
    working = _working_set(active)
    if n_disk < RELOADED * len(active) or working <= host:
        return None
    share = n_disk / sum(window.loads.values())
    return Finding(
        rule="host_cache",
        severity="warning",
        title="Adapters are read from the disk again and again",
        explanation="Host memory keeps packed adapters so that a reload is one copy; it holds fewer than are in use.",
        evidence=[
            Evidence(label="read from disk", value=words.per_minute(n_disk, window.seconds)),
            Evidence(label="adapters in use", value=f"{len(active)}, {words.n_bytes(working)}"),
            Evidence(label="host cache", value=words.n_bytes(host)),
            *_most_loaded(seen),
        ],
        cost=Cost(text=f"{words.percent(share)} of the loads wait for the disk", share=share),
        remedy="Let the host's memory keep the adapters in use.",
        setting=larger_pool(seen, "host_adapter_cache_bytes", SPARE * working),
    )


def adapters_per_step(seen: Seen) -> Finding | None:
    """Seats are free, but the batch may not hold another adapter."""
    limit, readings = int(seen.knob("max_adapters_per_step")), stats_of(seen.window)
    blocked = [stats for stats in readings if stats.waiting and stats.running < stats.seats]
    if len(blocked) <= MOSTLY * len(readings):
        return None
    latest = seen.window.after.adapters
    running = [adapter for adapter in latest if adapter.requests]
    waiting = [adapter for adapter in latest if adapter.waiting and not adapter.requests]
    is_room = seen.window.after.arena.free + seen.window.after.arena.cached > 0
    if len(running) < limit or not waiting or not is_room:
        return None
    wanted = len(running) + len(waiting)
    share = len(waiting) / wanted
    return Finding(
        rule="adapters_per_step",
        severity="warning",
        title="Requests wait because a step holds no more adapters",
        explanation="Seats are free, but those who wait want adapters beyond the number that may run at once.",
        evidence=[
            Evidence(label="different adapters running", value=f"{len(running)} of {limit}"),
            Evidence(label="adapters waited for", value=words.count(len(waiting))),
            Evidence(label="running requests", value=f"{seen.window.after.running} of {seen.window.after.seats} seats"),
        ],
        cost=Cost(text=f"{words.percent(share)} of the adapters in use wait for others to end", share=share),
        remedy="Let more adapters run at once; each one more adds its bytes to every step.",
        setting=f"{setting_name('max_adapters_per_step')}={wanted}",
    )


def huge_rank(seen: Seen) -> Finding | None:
    """One adapter's bytes make up a large part of what steps read, for a small part of the tokens."""
    window = seen.window
    read, uses = window.work.read_bytes, [use for use in window.adapter_uses() if use.digest and use.tokens > 0]
    n_tokens = window.prompt_tokens + window.generated_tokens
    if not read or not n_tokens or not uses:
        return None
    worst = max(uses, key=lambda use: use.read_bytes)
    share, tokens_share = worst.read_bytes / read, worst.tokens / n_tokens
    if share < DEAR or share < UNFAIR * tokens_share:
        return None
    sizes = {(adapter.tenant, adapter.digest): adapter.bytes for adapter in window.after.adapters if adapter.bytes}
    size = sizes.get((worst.tenant, worst.digest), 0)
    others = [n for key, n in sizes.items() if key != (worst.tenant, worst.digest)]
    if len(others) + 1 < LEAST_ADAPTERS or size < HUGE * median(others):
        return None
    rank, allowed = _ranks(seen, worst, set(sizes))
    return Finding(
        rule="huge_rank",
        severity="critical" if share >= MOSTLY else "warning",
        title="One adapter makes everybody's steps dear",
        explanation="A step reads each of its adapters once, and all its rows wait for that; this one is far larger.",
        evidence=[
            Evidence(label="adapter", value=seen.around.names.adapter(worst.tenant, worst.digest)),
            Evidence(label="its size", value=words.n_bytes(size)),
            Evidence(label="the others', median", value=words.n_bytes(median(others))),
            *([] if rank is None else [Evidence(label="its rank", value=words.count(rank))]),
            *([] if allowed is None else [Evidence(label="the highest of all others", value=words.count(allowed))]),
            Evidence(label="part of all bytes read", value=words.percent(share)),
            Evidence(label="part of all tokens", value=words.percent(tokens_share)),
            *_dearest(seen, uses, read),
        ],
        cost=Cost(text=f"{words.percent(share)} of what steps read is this adapter", share=share),
        remedy=_smaller_rank(allowed),
        setting=None if allowed is None else f"{setting_name('max_rank')}={allowed}",
    )


def _active(seen: Seen) -> dict[tuple[str, str], int]:
    """Sizes of the adapters that requests began on in the window, run on or wait for; 0 where nobody knows it now.

    The engine forgets an adapter that is in neither tier, but not what the busiest ones did.
    """
    known = {(entry.tenant, entry.digest): entry for entry in seen.window.after.adapters}
    active = {key for key, entry in known.items() if entry.heat > 0.5 or entry.requests or entry.waiting}
    active |= {(use.tenant, use.digest) for use in seen.window.adapter_uses() if use.digest and use.loads}
    return {key: known[key].bytes if key in known else 0 for key in active}


def _working_set(active: dict[tuple[str, str], int]) -> float:
    """Bytes of them all; one whose size is not known counts like the mean of the others."""
    known = [n_bytes for n_bytes in active.values() if n_bytes]
    return len(active) * sum(known) / len(known) if known else 0.0


def _most_loaded(seen: Seen) -> list[Evidence]:
    uses = sorted((use for use in seen.window.adapter_uses() if use.digest), key=lambda use: -use.loads)[:NAMED]
    return [
        Evidence(label=f"loads of {seen.around.names.adapter(use.tenant, use.digest)}", value=words.count(use.loads))
        for use in uses
        if use.loads
    ]


def _dearest(seen: Seen, uses: list[AdapterUse], read: int) -> list[Evidence]:
    steps = max(1, seen.window.n_steps)
    dearest = sorted(uses, key=lambda use: -use.read_bytes)[:NAMED]
    return [
        Evidence(
            label=f"read for {seen.around.names.adapter(use.tenant, use.digest)}",
            value=f"{words.n_bytes(use.read_bytes / steps)} a step, {words.percent(use.read_bytes / read)}",
        )
        for use in dearest
    ]


def _ranks(seen: Seen, worst: AdapterUse, known: set[tuple[str, str]]) -> tuple[int | None, int | None]:
    """The rank of the worst one, and a highest rank that refuses it and no other adapter; None where that is not known.

    Bytes do not tell: an adapter of a high rank on two linears is as large as one of a low rank on all of them.
    """
    registered = seen.around.registered()
    mine = next((each for each in registered if (each.tenant, each.digest) == (worst.tenant, worst.digest)), None)
    if mine is None or mine.rank is None:
        return None, None
    others = [
        each.rank
        for each in registered
        if each.rank is None or each.rank < mine.rank or (each.tenant, each.adapter) != (mine.tenant, mine.adapter)
    ]
    ranks = [rank for rank in others if rank is not None]
    is_complete = len(ranks) == len(others) and known <= {(each.tenant, each.digest) for each in registered}
    allowed = max(ranks, default=mine.rank) if is_complete else mine.rank
    return mine.rank, allowed if allowed < mine.rank else None


def _smaller_rank(allowed: int | None) -> str:
    text = "Have it trained with a smaller rank, or on fewer modules"
    if allowed is None:
        return f"{text}."
    return f"{text}; then let the engine take no higher rank than the others have. It refuses this one from then on."
