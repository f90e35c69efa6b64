"""One runner as a process of its own, and how much processor time everybody else took while it worked.

Reads /proc, so it knows Linux only.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from peer_runners.channel import Ask

RUNNERS = Path(__file__).parents[1] / "peer_runners"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
END_TIMEOUT_S = 30.0


class RunnerFailed(Exception):
    """The runner ended, said nothing in time, or could not be started; the message says where its log is."""


@dataclass(frozen=True)
class Program:
    """How a runner is started: its script, the Python of its environment, what it is told and what it finds set."""

    python: Path
    script: str
    settings: dict[str, Any]
    environment: dict[str, str]


@dataclass(frozen=True)
class Run:
    """One batch that was answered.

    Attributes:
        tokens, times: by request; times in seconds after the batch was handed over.
        foreign: the share of all cores that processes other than the runner's took meanwhile.
    """

    tokens: tuple[tuple[int, ...], ...]
    times: tuple[tuple[float, ...], ...]
    foreign: float

    @property
    def seconds(self) -> float:
        return max(times[-1] for times in self.times)

    @property
    def tokens_per_s(self) -> float:
        return sum(map(len, self.tokens)) / self.seconds

    @property
    def first_token_s(self) -> list[float]:
        return [times[0] for times in self.times]

    @property
    def between_tokens_s(self) -> list[float]:
        return [late - early for times in self.times for early, late in pairwise(times)]


class RunnerProcess:
    """A started runner. What it and its children print goes to `log`."""

    def __init__(self, program: Program, log: Path, start_timeout_s: float) -> None:
        self._log = log
        with log.open("wb") as target:
            self._process = subprocess.Popen(
                [str(program.python), str(RUNNERS / program.script), json.dumps(program.settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=target,
                env={**os.environ, **program.environment},
                text=True,
                start_new_session=True,
            )
        try:
            self.version: str = self._receive(start_timeout_s)["version"]
        except RunnerFailed:
            self.close()
            raise

    def run(self, asks: list[Ask], timeout_s: float) -> Run:
        """Hand a batch over and wait for its answers.

        Raises:
            RunnerFailed: there are none, or not all the tokens that were asked for.
        """
        assert self._process.stdin
        own, everybody, started = tree_seconds(self._process.pid), machine_seconds(), time.monotonic()
        try:
            self._process.stdin.write(json.dumps([asdict(ask) for ask in asks]) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise RunnerFailed(f"it is gone; see {self._log}") from error
        answers = self._receive(timeout_s)
        wall = time.monotonic() - started
        foreign = (machine_seconds() - everybody) - (tree_seconds(self._process.pid) - own)
        for ask, (tokens, _) in zip(asks, answers, strict=True):
            if len(tokens) != ask.max_tokens:
                raise RunnerFailed(f"it gave {len(tokens)} of {ask.max_tokens} tokens")
        return Run(
            tokens=tuple(tuple(tokens) for tokens, _ in answers),
            times=tuple(tuple(times) for _, times in answers),
            foreign=max(0.0, foreign) / (wall * (os.cpu_count() or 1)),
        )

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stopped meanwhile, with its children: some engines look for work all the time and take it from others."""
        os.killpg(self._process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self._process.pid, signal.SIGCONT)

    def close(self) -> None:
        """Close its input, which ends it, and see that none of its children stays."""
        if self._process.stdin:
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_TIMEOUT_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _receive(self, timeout_s: float) -> Any:
        assert self._process.stdout
        ready, _, _ = select.select([self._process.stdout], [], [], timeout_s)
        line = self._process.stdout.readline() if ready else ""
        if not line:
            reason = "it ended" if ready else f"it was silent for {timeout_s:.0f} s"
            raise RunnerFailed(f"{reason}; see {self._log}")
        return json.loads(line)


def machine_seconds() -> float:
    """Processor time that this machine has spent, all cores, what a host took away from it included."""
    numbers = list(map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:]))
    user, nice, system, _, _, irq, softirq, steal = numbers[:8]
    return (user + nice + system + irq + softirq + steal) / TICKS_PER_S


def tree_seconds(pid: int) -> float:
    """Processor time of a process, its descendants, and those of them that have ended."""
    return sum(sum(_stat(member)[1:]) for member in process_tree(pid)) / TICKS_PER_S


def process_tree(pid: int) -> set[int]:
    """A process and all its living descendants."""
    parents = {int(path.name): _stat(int(path.name))[0] for path in Path("/proc").iterdir() if path.name.isdigit()}
    tree = {pid}
    while more := {child for child, parent in parents.items() if parent in tree} - tree:
        tree |= more
    return tree


def _stat(pid: int) -> tuple[int, int, int, int, int]:
    """Parent, and ticks of user, system and those of ended children; zeros for a process that is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return 0, 0, 0, 0, 0
    return int(fields[1]), int(fields[11]), int(fields[12]), int(fields[13]), int(fields[14])
