"""What a load test leaves behind: every request, every gap between tokens in bins, readings of the engine's counters.

One format for a simulated run, a run on an engine in this process and a run against any server; what a server does not
tell is None. Reports are made of this alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

FORMAT = 1
Source = Literal["simulator", "engine", "server"]
Outcome = Literal["ok", "refused", "expired", "failed", "aborted"]
SetupValue = int | float | str | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One request; times in seconds since the point's start.

    Attributes:
        sent_s: when it was due; a generator that was late is part of what the request waited.
        queue_s: its time in the engine's queue.
        first_s, last_s: when its first and its last token came.
        code: the error's, of one that was not served.
    """

    tenant: str
    adapter: str
    n_prompt: int
    n_cached: int | None
    n_output: int
    sent_s: float
    queue_s: float | None
    first_s: float | None
    last_s: float | None
    outcome: Outcome
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """An engine's state and counters at one moment; KV shares are of the pool, dictionaries by kind of step.

    `kv_peak` is the largest share in use since the point began, as the engine itself saw it. None, and an empty
    dictionary: a server of another make does not tell.

    `queue_seconds` and `prefill_seconds` are what all requests together that have their first token waited for it, in
    the queue and from their start on; of a server whose requests do not tell it one by one.
    """

    at_s: float
    running: int
    waiting: int
    kv_used: float | None
    kv_reserved: float | None
    kv_cached: float | None
    kv_peak: float | None
    prompt_tokens: int
    output_tokens: int
    preemptions: int | None
    steps: dict[str, int]
    step_seconds: dict[str, float]
    flops: dict[str, float]
    read_bytes: dict[str, float]
    first_tokens: int | None = None
    queue_seconds: float | None = None
    prefill_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Generator:
    """How far a load generator was itself the one that was slow, and whether it counted what the server counted.

    Attributes:
        late_p99_s, late_max_s: requests went out so long after they were due.
        lag_p99_s, lag_max_s: its event loop came so late to what was ready.
        cpu_share: of one core.
        n_pieces, n_tokens: pieces of text that came, and the tokens that the server says it sent, of the same requests.
        n_differing: requests in which those two differ.
        n_without_usage: requests whose server told no counts; theirs are the generator's own.
        n_pauses, paused_s: how often clients that wait for answers waited longer, since they were not served, and for
            how long in all.
    """

    late_p99_s: float
    late_max_s: float
    lag_p99_s: float
    lag_max_s: float
    cpu_share: float
    n_pieces: int
    n_tokens: int
    n_differing: int
    n_without_usage: int
    n_pauses: int = 0
    paused_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PointRecord:
    """One setup and what came of it; `gaps` are (seconds, how often) between tokens, in order.

    `readings` begin with one before the first request and end with one after the last; a server without our counters
    has none. `generator` is there where one ran beside the server. `pool_tokens` is the KV pool's room where it is
    another one than the machine's.
    """

    setup: dict[str, SetupValue]
    seconds: float
    requests: list[RequestRecord]
    gaps: list[tuple[float, int]]
    readings: list[Reading] = field(default_factory=list)
    generator: Generator | None = None
    pool_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Constants of model and device; `copy_bandwidth` is what copying memory measured at, in bytes/s read and written.

    `peak_flops` and `peak_bandwidth` are those that MFU and MBU refer to.
    """

    model: str
    device: str
    peak_flops: float | None = None
    peak_bandwidth: float | None = None
    copy_bandwidth: float | None = None
    kv_bytes_per_token: int | None = None
    weights_bytes: int | None = None
    pool_tokens: int | None = None
    block_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run: its points along `axis`, the entry of their setups that varies ("" for a single point)."""

    format: int = FORMAT
    name: str
    axis: str
    source: Source
    target: str
    started_at: str
    machine: Machine
    points: list[PointRecord]


class RecordUnreadable(ValueError):
    """The file is no record of a run, or one of another format."""


def write_record(record: RunRecord, path: Path) -> None:
    path.write_bytes(msgspec.json.encode(record))


def read_record(path: Path) -> RunRecord:
    """Raises RecordUnreadable; what is wrong is said with its place."""
    try:
        record = msgspec.json.decode(path.read_bytes(), type=RunRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RecordUnreadable(f"{path}: {error}") from None
    if record.format != FORMAT:
        raise RecordUnreadable(f"{path}: format {record.format}, this program reads {FORMAT}")
    return record
