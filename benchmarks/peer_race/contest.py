"""Ours and one peer in turn, on the same prompts: pairs of runs, of which only quiet ones count.

A pair is ours, then the peer, on prompts that neither has seen. Its ratio is taken within the pair, and the median over
pairs is what is reported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from peer_race.catalogue import OURS, Peer
from peer_race.materials import Materials, MaterialsMissing
from peer_race.process import Program, Run, RunnerFailed, RunnerProcess
from peer_race.workload import Prompts, Scenario
from peer_runners.channel import Ask

MAX_FOREIGN = 0.05
WARM_UP_TOKENS = 4
START_TIMEOUT_S = 600.0
RUN_TIMEOUT_S = 900.0
# So many pairs where the peer needs at most so many seconds for one.
PAIRS = ((10.0, 5), (40.0, 3), (float("inf"), 1))


class OursFailed(Exception):
    """Our own engine failed; there is nothing more to compare."""


@dataclass(frozen=True)
class Pair:
    """The same requests, answered by ours and by the peer."""

    asks: list[Ask]
    ours: Run
    peer: Run

    @property
    def quiet(self) -> bool:
        return max(self.ours.foreign, self.peer.foreign) <= MAX_FOREIGN

    @property
    def ratio(self) -> float:
        return self.ours.tokens_per_s / self.peer.tokens_per_s


@dataclass
class Contest:
    """Ours against one peer in one scenario.

    Attributes:
        pairs: those that count: the quiet ones or, with `noisy`, those that there are.
        failure: why there are none.
        note: how the peer went about it.
        agreement: see `agreement`; by whose answers.
    """

    scenario: Scenario
    peer: str
    version: str = ""
    pairs: list[Pair] = field(default_factory=list)
    n_discarded: int = 0
    noisy: bool = False
    failure: str = ""
    note: str = ""
    agreement: dict[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        return median(pair.ratio for pair in self.pairs)


@dataclass(frozen=True)
class Race:
    """What all contests of one run have in common.

    Attributes:
        quick: one pair of `quick_tokens` tokens each, whatever else runs on the machine.
    """

    materials: Materials
    scenarios: Sequence[Scenario]
    n_threads: int
    logs: Path
    quick: bool
    quick_tokens: int = 16

    def start(self, name: str, program: Program) -> RunnerProcess:
        say(f"starting {name}")
        return RunnerProcess(program, self.logs / f"{name}.log", START_TIMEOUT_S)

    def run(self, peers: Sequence[Peer], ours: RunnerProcess) -> Iterator[Contest]:
        """Every peer in every scenario, one peer after another, so that only two engines are in memory.

        Raises:
            OursFailed: between two contests or in one; those before it stand.
        """
        prompts = Prompts(self.materials.model_dir)
        for peer in peers:
            yield from self._against(peer, ours, prompts)

    def _against(self, peer: Peer, ours: RunnerProcess, prompts: Prompts) -> Iterator[Contest]:
        """All scenarios, those without adapters first; a peer that fails in one is started again for the next."""
        running: RunnerProcess | None = None
        current: Program | None = None
        try:
            for scenario in sorted(self.scenarios, key=lambda scenario: bool(scenario.adapters)):
                contest = Contest(scenario, peer.name)
                contest.note = peer.many_adapters if len(scenario.adapters) > 1 else ""
                try:
                    program = peer.program(self.materials, scenario, self.n_threads)
                    if running is None or program != current:
                        if running:
                            running.close()
                        running, current = None, program
                        running = self.start(peer.name, program)
                    contest.version = running.version
                    self._hold(contest, ours, running, prompts)
                except (RunnerFailed, MaterialsMissing) as error:
                    contest.failure = str(error).splitlines()[0]
                    say(f"{scenario.name}: {peer.name} failed: {error}")
                    if running:
                        running.close()
                    running = None
                yield contest
        finally:
            if running:
                running.close()

    def _hold(self, contest: Contest, ours: RunnerProcess, peer: RunnerProcess, prompts: Prompts) -> None:
        scenario, adapters = contest.scenario, self.materials.adapters
        warm_up = prompts.batch(scenario, adapters, WARM_UP_TOKENS)
        run_ours(ours, warm_up)
        peer.run(warm_up, RUN_TIMEOUT_S)

        def pair() -> Pair:
            n_tokens = min(self.quick_tokens, scenario.n_output) if self.quick else scenario.n_output
            asks = prompts.batch(scenario, adapters, n_tokens)
            with peer.paused():
                run = run_ours(ours, asks)
            return Pair(asks, run, peer.run(asks, RUN_TIMEOUT_S))

        if self.quick:
            contest.pairs = [pair()]
            contest.noisy = not contest.pairs[0].quiet
        else:
            collect(contest, pair)
        say(f"{scenario.name}: {OURS} / {contest.peer} = {contest.ratio:.2f} ({len(contest.pairs)} pairs)")


def run_ours(ours: RunnerProcess, asks: list[Ask]) -> Run:
    """Raises OursFailed."""
    try:
        return ours.run(asks, RUN_TIMEOUT_S)
    except RunnerFailed as error:
        raise OursFailed(str(error)) from error


def collect(contest: Contest, pair: Callable[[], Pair]) -> None:
    """As many quiet pairs as the peer's speed allows, in at most twice as many tries and one."""
    tried = [pair()]
    n_wanted = next(n for seconds, n in PAIRS if tried[0].peer.seconds <= seconds)
    while sum(one.quiet for one in tried) < n_wanted and len(tried) < 2 * n_wanted + 1:
        tried.append(pair())
    quiet = [one for one in tried if one.quiet]
    contest.pairs, contest.noisy = quiet or tried, not quiet
    contest.n_discarded = len(tried) - len(contest.pairs)


def say(line: str) -> None:
    """Progress, apart from the results."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
