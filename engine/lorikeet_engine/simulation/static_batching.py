"""Static batching, to show what continuous batching saves: a fixed batch, padded to its longest, until all have ended.

The next batch starts only when the last answer of this one is complete. So a row that ended early goes on costing its
place (barrel effect), short prompts are computed as long as the longest (padding), nobody leaves early (departure
blocking), and one long answer sets the time of all (long/short mix). Times are those of the same roofline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lorikeet_engine.cost import DeviceProfile, ModelCost, StepShape, roofline_seconds
from lorikeet_engine.simulation.workload.arrival import Traffic

RESOLUTION = 50  # points of a batch's way from full to empty that are kept


@dataclass(frozen=True, slots=True)
class Job:
    """One request: tokens of its prompt and of its answer, and when it came."""

    n_prompt: int
    n_output: int
    at: float = 0.0


@dataclass(slots=True)
class StaticRun:
    """What came of it.

    Attributes:
        live: (time, rows of the running batch that still produce tokens): the effective batch over time.
        half_time_live: for each batch, the rows still producing when half of its steps were done.
        useful_row_steps: decode rows that produced a token somebody waits for.
        row_steps: all decode rows, those of answers that had ended among them.
        prompt_tokens: of the prompts themselves.
        padded_tokens: computed for prompts, padding included.
        blocked_s: summed over requests: from their last token to the end of their batch, when they got it.
    """

    seconds: float = 0.0
    n_steps: int = 0
    output_tokens: int = 0
    useful_row_steps: int = 0
    row_steps: int = 0
    prompt_tokens: int = 0
    padded_tokens: int = 0
    blocked_s: float = 0.0
    half_time_live: list[float] = field(default_factory=list)
    live: list[tuple[float, int]] = field(default_factory=list)
    e2e: list[float] = field(default_factory=list)

    @property
    def mean_effective_batch(self) -> float:
        """Rows of a decode step that were of use, on average."""
        return self.useful_row_steps / self.n_steps if self.n_steps else 0.0

    @property
    def efficiency(self) -> float:
        return self.useful_row_steps / self.row_steps if self.row_steps else 1.0

    @property
    def padding_share(self) -> float:
        return 1 - self.prompt_tokens / self.padded_tokens if self.padded_tokens else 0.0


def jobs_of(traffic: Traffic) -> list[Job]:
    """All of the traffic's requests, clients of closed loops sending theirs without a pause."""
    jobs: list[Job] = []
    while (at := traffic.next_at()) is not None:
        for arrival in traffic.take(at):
            jobs.append(Job(len(arrival.request.prompt), arrival.n_output, arrival.at))
            traffic.on_ended(arrival.request.request_id, at)
    return jobs


def run_static(jobs: Sequence[Job], batch_size: int, cost: ModelCost, profile: DeviceProfile) -> StaticRun:
    """Serve `jobs` in the order given, `batch_size` at a time; a batch starts when all its requests have come."""
    run = StaticRun()
    for first in range(0, len(jobs), batch_size):
        _run_batch(run, jobs[first : first + batch_size], cost, profile)
    return run


def _run_batch(run: StaticRun, batch: Sequence[Job], cost: ModelCost, profile: DeviceProfile) -> None:
    run.seconds = max(run.seconds, max(job.at for job in batch))
    longest_prompt = max(job.n_prompt for job in batch)
    longest_output = max(job.n_output for job in batch)
    n_rows = len(batch)
    prefill = StepShape()
    for _ in batch:
        prefill.add_prefill(longest_prompt, 0, samples=True)
    run.seconds += roofline_seconds(cost, profile, prefill)
    ends = sorted(job.n_output for job in batch)
    n_ended, ended_at = 0, []
    every = max(1, longest_output // RESOLUTION)
    for step in range(1, longest_output + 1):
        if step > 1:  # the first token came with the prefill
            context = longest_prompt + step - 2
            shape = StepShape(n_decode=n_rows, decode_context=n_rows * (context + 1), n_sampled=n_rows)
            run.seconds += roofline_seconds(cost, profile, shape)
            run.n_steps += 1
            run.row_steps += n_rows
            run.useful_row_steps += n_rows - n_ended
        if step % every == 1 or every == 1:
            run.live.append((run.seconds, n_rows - n_ended))
        while n_ended < n_rows and ends[n_ended] <= step:
            ended_at.append(run.seconds)
            n_ended += 1
        if step == longest_output // 2:
            run.half_time_live.append(n_rows - n_ended)
    run.live.append((run.seconds, 0))
    run.output_tokens += sum(ends)
    run.prompt_tokens += sum(job.n_prompt for job in batch)
    run.padded_tokens += n_rows * longest_prompt
    run.blocked_s += sum(run.seconds - at for at in ended_at)
    run.e2e += [run.seconds - job.at for job in batch]
