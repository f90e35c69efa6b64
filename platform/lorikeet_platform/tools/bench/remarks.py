"""What a reader must know before the figures of a point: who was slow, and whose counts agree."""

from __future__ import annotations

from collections.abc import Iterator

from lorikeet_engine.experiments.measures import Outcome
from lorikeet_engine.experiments.record import PointRecord, RunRecord
from lorikeet_platform.tools.bench.load.pauses import FIRST_S, MOST_S

# What a generator may take of the figures that it measures, and the resolution of its timers, in seconds.
TOLERATED, RESOLUTION_S = 0.1, 0.002
NEVER_SHARED = frozenset({"prompt_tokens", "seed"})  # of a load of one group
OF_CHANCE = 0.05  # a chat template is the same for all
BUSY = 0.9  # of a core; it has one


def remarks(point: PointRecord) -> list[str]:
    return [*_on_generator(point), *_on_pauses(point), *_on_counters(point), *_on_cache(point)]


def remarks_of(record: RunRecord) -> list[str]:
    """Of all points; those of a sweep each with its place."""
    told: list[str] = []
    for point in record.points:
        place = f"{record.axis} {point.setup.get(record.axis)}: " if record.axis else ""
        if record.axis and not any(request.outcome == "ok" for request in point.requests):
            told.append(f"{place}Nothing was served, so it has no figures and is in no picture.")
        told += [f"{place}{remark}" for remark in remarks(point)]
    return told


def is_late(point: PointRecord) -> bool:
    """Whether the figures are partly the generator's own."""
    generator = point.generator
    if generator is None:
        return False
    outcome = Outcome(point)
    return (
        generator.cpu_share > BUSY
        or generator.late_p99_s > max(TOLERATED * outcome.ttft_at(0.5), RESOLUTION_S)
        or generator.lag_p99_s > max(TOLERATED * outcome.gap_at(0.5), RESOLUTION_S)
    )


def _on_generator(point: PointRecord) -> Iterator[str]:
    generator = point.generator
    if generator is None:
        return
    late = _p99_and_most(generator.late_p99_s, generator.late_max_s)
    lag = _p99_and_most(generator.lag_p99_s, generator.lag_max_s)
    said = (
        f"requests left {late} after they were due, its event loop lagged {lag}, and it took "
        f"{100 * generator.cpu_share:.0f} % of a core"
    )
    if is_late(point):
        yield f"The generator was slow beside what it measured, so the latencies are partly its own: {said}."
    else:
        yield f"The generator kept up: {said}."
    if generator.n_differing:
        yield (
            f"In {generator.n_differing} requests the pieces that came are not the tokens that the server counts: "
            f"{generator.n_pieces:,} pieces, {generator.n_tokens:,} tokens in all. Times between tokens are those "
            "between pieces."
        )
    if generator.n_without_usage:
        yield (
            f"Of {generator.n_without_usage} requests the server told no counts: theirs are what was asked for, and "
            "the pieces that came."
        )


def _on_pauses(point: PointRecord) -> Iterator[str]:
    generator = point.generator
    if generator is not None and generator.n_pauses:
        yield (
            f"Clients that were not served waited before they asked again, {generator.n_pauses:,} times and "
            f"{generator.paused_s:,.1f} s in all: as long as the server asked for by Retry-After, or else {FIRST_S:g} "
            f"to {MOST_S:g} s, growing. So much less was asked of the server than that many clients would ask."
        )


def _p99_and_most(p99_s: float, most_s: float) -> str:
    return f"{1000 * p99_s:.1f} ms (p99; at most {1000 * most_s:.1f} ms)"


def _on_counters(point: PointRecord) -> Iterator[str]:
    if not point.readings or point.generator is None:
        return
    if point.readings[-1].at_s < point.seconds:
        yield (
            f"The server's counters could not be read at the end: figures that are made of them end "
            f"{point.readings[-1].at_s:.1f} s after the start, and the test after {point.seconds:.1f} s."
        )
        return
    counted = point.readings[-1].output_tokens - point.readings[0].output_tokens
    told = sum(request.n_output for request in point.requests)
    if counted == told:
        yield f"The server's counters and its answers agree: {told:,} output tokens."
    else:
        yield (
            f"The server's counters say {counted:,} output tokens and its answers {told:,}: others asked it as well, "
            "or it computed tokens that it did not send."
        )


def _on_cache(point: PointRecord) -> Iterator[str]:
    """Prompts with no head in common are found in a cache only when they were sent before."""
    if point.generator is None or not point.setup.keys() >= NEVER_SHARED or "shared_tokens" in point.setup:
        return
    cached = sum(request.n_cached or 0 for request in point.requests)
    prompts = sum(request.n_prompt for request in point.requests)
    if cached > OF_CHANCE * prompts:
        yield (
            f"The server had {cached:,} of {prompts:,} prompt tokens in its prefix cache: an earlier test with this "
            "seed sent them. Another --seed asks for new ones."
        )
