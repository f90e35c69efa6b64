"""More work than the engine can do in time, predictions that are wrong about it, and what breaks or piles up."""

from __future__ import annotations

from typing import Final

from lorikeet_platform.doctor.evidence import words
from lorikeet_platform.doctor.evidence.room import larger_pool
from lorikeet_platform.doctor.examined import Seen
from lorikeet_platform.doctor.schemas import Cost, Evidence, Finding
from lorikeet_platform.engine_watch.latency import spread_of
from lorikeet_platform.engine_watch.report import setting_name

# What is nobody's own fault; `tenant_…` reasons are limits that do their work.
REASONS: Final = {
    "engine_queue": "the queue was full",
    "engine_tokens": "too many prompt tokens waited",
    "ttft_engine": "the work ahead would have made it late",
    "ttft_adapter": "its adapter would have come too late",
    "ttft_kv": "KV memory would have been free too late",
}
EXPIRED: Final = "expired"
LEAST_REFUSED: Final = 5
REFUSED_SHARE: Final = 0.01
MANY_REFUSED: Final = 0.1

LEAST_STEPS: Final = 200
LARGE_ERROR: Final = 0.5
LATE_ERROR_S: Final = 0.5

MANY_UNSETTLED: Final = 200
FULL_UNSETTLED: Final = 65_536  # the engine takes no more requests then


def overload(seen: Seen) -> Finding | None:
    """Requests are refused or expire because the engine cannot serve them in time."""
    window = seen.window
    by_reason = {reason: n for reason, n in window.refusals.items() if reason in REASONS}
    if expired := window.after.expired - window.before.expired:
        by_reason[EXPIRED] = expired
    lost, begun = sum(by_reason.values()), spread_of(window, "queue").count
    share = lost / (lost + begun) if lost else 0.0
    if lost < LEAST_REFUSED or share < REFUSED_SHARE:
        return None
    worst = max(by_reason, key=lambda reason: by_reason[reason])
    remedy, setting = _relief(seen, worst)
    queue = spread_of(window, "queue")
    return Finding(
        rule="overload",
        severity="critical" if share >= MANY_REFUSED else "warning",
        title="More is asked of the engine than it can do in time",
        explanation="Requests whose first token would come late are refused at once, or dropped when it is late.",
        evidence=[
            *(
                Evidence(label=REASONS.get(reason, "taken, but its deadline passed"), value=words.count(n))
                for reason, n in sorted(by_reason.items(), key=lambda item: -item[1])
            ),
            Evidence(label="begun meanwhile", value=words.count(begun)),
            Evidence(label="waiting now", value=words.count(window.after.waiting)),
            Evidence(label="time in the queue, mean", value=words.seconds(queue.mean_s)),
        ],
        cost=Cost(text=f"{words.percent(share)} of the requests get no answer", share=share),
        remedy=remedy,
        setting=setting,
    )


def step_time_model(seen: Seen) -> Finding | None:
    """Steps take other times than predicted, so requests are let in or refused on wrong grounds."""
    window = seen.window
    error, late_s, ttft = window.after.step_time_error, window.after.ttft_error_s, spread_of(window, "ttft")
    if window.n_steps < LEAST_STEPS or error < LARGE_ERROR or not ttft.count:
        return None
    if late_s < max(LATE_ERROR_S, LARGE_ERROR * ttft.mean_s):
        return None
    return Finding(
        rule="step_time_model",
        severity="warning",
        title="The engine cannot tell how long its steps take",
        explanation="It learns that from steps that ran; something beside it makes equal steps take unequal times.",
        evidence=[
            Evidence(label="predicted step times are off by", value=words.percent(error)),
            Evidence(label="predicted first tokens are off by", value=words.seconds(late_s)),
            Evidence(label="time to the first token, mean", value=words.seconds(ttft.mean_s)),
        ],
        cost=Cost(text="requests are refused that would have been in time, and taken that are late", share=None),
        remedy="See what else uses the device; on a CPU leave a core to the rest of the machine.",
        setting=_fewer_threads(seen),
    )


def failed_steps(seen: Seen) -> Finding | None:
    """Steps ended in an error, and with them all their requests; such a finding stays for a while."""
    n = seen.window.steps_of("failed")
    if n < 1:
        return None
    share = n / max(n, seen.window.n_steps)
    return Finding(
        rule="failed_steps",
        severity="critical",
        title="Steps have failed",
        explanation="Every request of a step that fails ends with an error. This stays for a quarter of an hour.",
        evidence=[
            Evidence(label="failed steps", value=words.count(n)),
            Evidence(label="all steps", value=words.count(seen.window.n_steps)),
        ],
        cost=Cost(text=f"{words.percent(share)} of the steps", share=share),
        remedy="Look for `failed` in the engine's log.",
        setting=None,
    )


def unsettled(seen: Seen) -> Finding | None:
    """What requests have used is not put on record as fast as they end."""
    before, after = seen.window.before.unsettled, seen.window.after.unsettled
    if after < MANY_UNSETTLED or after <= before:
        return None
    share = after / FULL_UNSETTLED
    return Finding(
        rule="unsettled",
        severity="critical" if share >= 0.5 else "warning",
        title="Usage is not put on record as fast as requests end",
        explanation="The engine remembers what ended requests have used until it is written down.",
        evidence=[
            Evidence(label="requests not on record", value=words.count(after)),
            Evidence(label="more than at the beginning", value=words.count(after - before)),
            Evidence(label="the engine takes no more requests at", value=words.count(FULL_UNSETTLED)),
        ],
        cost=Cost(text=f"{words.percent(share)} of what the engine can remember", share=share),
        remedy="See that a worker runs and the database takes writes; `lorikeet jobs chores` says when it last did.",
        setting=None,
    )


def _relief(seen: Seen, reason: str) -> tuple[str, str | None]:
    knob, after = seen.knob, seen.window.after
    match reason:
        case "ttft_kv":
            return "Give the KV pool more room.", larger_pool(seen, "kv_cache_bytes", 2 * after.kv.capacity)
        case "ttft_adapter":
            setting = larger_pool(seen, "host_adapter_cache_bytes", 2 * after.host.capacity)
            return "Keep more adapters in host memory.", setting
        case "engine_tokens":
            wanted = int(2 * knob("max_queued_tokens"))
            text = "Let more prompt tokens wait, if their callers may wait longer; else add an engine."
            return text, f"{setting_name('max_queued_tokens')}={wanted}"
        case "engine_queue":
            wanted = int(2 * knob("max_queued_requests"))
            text = "Let more requests wait, if their callers may wait longer; else add an engine."
            return text, f"{setting_name('max_queued_requests')}={wanted}"
    text = "Add an engine (`lorikeet plan` says how many a load needs), or allow first tokens to come later."
    deadline = knob("ttft_deadline")
    return text, f"{setting_name('ttft_deadline')}={2 * deadline:g}" if deadline else None


def _fewer_threads(seen: Seen) -> str | None:
    threads = int(seen.knob("threads"))
    return f"{setting_name('threads')}={threads - 1}" if seen.design.knobs["device"] == "cpu" and threads > 1 else None
