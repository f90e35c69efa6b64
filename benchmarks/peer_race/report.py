"""From contests to a table a scenario, and to figures with their targets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median, quantiles

from figures import Figure, at_least, at_most, print_table
from peer_race.agreement import WRONG, correct
from peer_race.catalogue import OURS
from peer_race.contest import Contest
from peer_race.process import Run

COLUMNS = ("engine", "tokens/s", "ours is", "TTFT p50/p99 ms", "ITL p50/p99 ms", "fit", "pairs", "")


def print_contests(contests: Sequence[Contest], version: str) -> None:
    for group in _by_scenario(contests):
        scenario = group[0].scenario
        runs = [pair.ours for contest in group for pair in contest.pairs]
        rows = [_ours_row(version, runs, group)] if runs else []
        rows += [_peer_row(contest) for contest in group]
        print_table(f"{scenario.name}: {scenario.title}", COLUMNS, rows)


def figures_of(contests: Sequence[Contest], missing: Mapping[str, str], version: str, *, quick: bool) -> list[Figure]:
    """Everything that was measured, and for each scenario ours as a multiple of the best correct peer.

    `missing` has the peers that took no part, and why.
    That promise is kept only against all peers: where one is missing or failed, a multiple that suffices is shown and
    not judged. Nor is any in a quick run, whose answers are shorter, or where no pair was quiet. Wrong answers of our
    own break it whatever the speed.
    """
    figures = [Figure(f"{peer}: {reason}", 0, "") for peer, reason in missing.items()]
    for group in _by_scenario(contests):
        name = group[0].scenario.name
        runs = [pair.ours for contest in group for pair in contest.pairs]
        figures += _speed(f"{name}: {OURS} {version}", runs)
        for contest in group:
            label = f"{name}: {contest.peer} {contest.version}"
            figures += _speed(label, [pair.peer for pair in contest.pairs])
            figures += [Figure(f"{name}: {OURS} over {contest.peer}", contest.ratio, "")] if contest.pairs else []
            figures += [Figure(f"{label}: {who} fits", share, "") for who, share in contest.agreement.items()]
        figures += _promises(group, complete=not missing, quick=quick)
    return figures


def _promises(group: Sequence[Contest], *, complete: bool, quick: bool) -> Iterator[Figure]:
    scenario = group[0].scenario
    counted = [contest for contest in group if contest.pairs and correct(contest, contest.peer)]
    if not counted:
        return
    best = min(counted, key=lambda contest: contest.ratio)
    versus = f"{scenario.name}: {OURS} over {best.peer}, the best correct peer here"
    promises = [at_least(versus, best.ratio, "", scenario.target)]
    if scenario.bounds_ttft:
        ratio = median(median(p.ours.first_token_s) / median(p.peer.first_token_s) for p in best.pairs)
        promises.append(at_most(f"{versus}, TTFT", ratio, "", 1.0))
    measured = not quick and not any(contest.noisy for contest in group)
    complete = complete and not any(contest.failure for contest in group)
    for promise in promises:
        holds = promise.holds if measured and (complete or not promise.holds) else None
        if not all(correct(contest, OURS) for contest in counted):
            holds = False
        yield replace(promise, holds=holds)


def _speed(name: str, runs: Sequence[Run]) -> Iterator[Figure]:
    if runs:
        yield Figure(name, median(run.tokens_per_s for run in runs), "tokens/s")
        for what, values in (("TTFT", _first_tokens(runs)), ("ITL", _between(runs))):
            for percent in (50, 99):
                yield Figure(f"{name}: {what} p{percent}", 1e3 * percentile(values, percent), "ms")


def _ours_row(version: str, runs: Sequence[Run], group: Sequence[Contest]) -> tuple[str, ...]:
    fits = [contest.agreement[OURS] for contest in group if OURS in contest.agreement]
    wrong = [contest.agreement[WRONG] for contest in group if WRONG in contest.agreement]
    note = f"asked of {WRONG}: {max(wrong):.3f}" if wrong else ""
    fit = f"{min(fits):.3f}" if fits else ""
    return (f"{OURS} {version}", *_speed_cells(runs, ""), fit, str(len(runs)), note)


def _peer_row(contest: Contest) -> tuple[str, ...]:
    name = f"{contest.peer} {contest.version}".strip()
    if not contest.pairs:
        return name, "", "", "", "", "", "", contest.failure
    fit = contest.agreement.get(contest.peer)
    notes = [contest.note, "" if correct(contest, contest.peer) else "wrong answers, does not count"]
    notes.append("not quiet" if contest.noisy else "")
    notes.append(f"{contest.n_discarded} pairs discarded" if contest.n_discarded else "")
    cells = _speed_cells([pair.peer for pair in contest.pairs], f"{contest.ratio:.2f}")
    fit_cell = "" if fit is None else f"{fit:.3f}"
    return (name, *cells, fit_cell, str(len(contest.pairs)), "; ".join(filter(None, notes)))


def _speed_cells(runs: Sequence[Run], ratio: str) -> tuple[str, str, str, str]:
    first, between = _first_tokens(runs), _between(runs)
    return (
        f"{median(run.tokens_per_s for run in runs):.1f}",
        ratio,
        f"{1e3 * percentile(first, 50):.0f} / {1e3 * percentile(first, 99):.0f}",
        f"{1e3 * percentile(between, 50):.1f} / {1e3 * percentile(between, 99):.1f}",
    )


def percentile(values: Sequence[float], percent: int) -> float:
    if len(values) == 1:
        return values[0]
    return quantiles(values, n=100, method="inclusive")[percent - 1]


def _first_tokens(runs: Sequence[Run]) -> list[float]:
    return [value for run in runs for value in run.first_token_s]


def _between(runs: Sequence[Run]) -> list[float]:
    return [value for run in runs for value in run.between_tokens_s]


def _by_scenario(contests: Sequence[Contest]) -> Iterator[list[Contest]]:
    for name in dict.fromkeys(contest.scenario.name for contest in contests):
        yield [contest for contest in contests if contest.scenario.name == name]
