"""Whether an engine answered with the adapter that it was asked for, by transformers + PEFT in float32.

Two bf16 engines part at the first near tie, and what follows differs for ever; so answers are not compared with each
other. Every token is judged behind the tokens that its own engine chose before it: it fits if its float32 logit is
within `TIE` of the largest. An engine counts where at least `ENOUGH` of the tokens of every answer fit.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from peer_race.catalogue import OURS
from peer_race.contest import Contest, Pair, say
from peer_race.process import RUNNERS, Program, Run

TIE = 0.5
ENOUGH = 0.95
MAX_ANSWERS = 8  # of one batch; in a scenario with adapters that is every adapter at least once
MAX_BASE_ANSWERS = 2
JUDGE_TIMEOUT_S = 1800.0
WRONG = "the wrong adapter"

Question = tuple[list[int], tuple[int, ...], str]


@dataclass(frozen=True)
class Verdict:
    """One engine in one scenario, and what is asked about it."""

    contest: Contest
    engine: str
    questions: list[Question]


def judge_all(contests: Sequence[Contest], program: Program, adapters: Sequence[str]) -> None:
    """Fill every contest's `agreement`: the share of tokens that fit in the worst answer, by engine.

    `WRONG` is the same of our own answers, had each been asked of the next adapter: what the rule sees where an engine
    mixes adapters up.
    """
    verdicts = list(_verdicts(contests, adapters))
    questions = [question for verdict in verdicts for question in verdict.questions]
    if not questions:
        return
    say(f"judging {len(questions)} answers in float32")
    done = subprocess.run(
        [str(program.python), str(RUNNERS / program.script), json.dumps(program.settings)],
        input=json.dumps(questions),
        capture_output=True,
        text=True,
        timeout=JUDGE_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"the judge failed:\n{done.stderr[-2000:]}")
    gaps = iter(json.loads(done.stdout))
    for verdict in verdicts:
        answers = [next(gaps) for _ in verdict.questions]
        verdict.contest.agreement[verdict.engine] = min(sum(gap <= TIE for gap in one) / len(one) for one in answers)


def correct(contest: Contest, engine: str) -> bool:
    return contest.agreement.get(engine, 0.0) >= ENOUGH


def _verdicts(contests: Sequence[Contest], adapters: Sequence[str]) -> Iterable[Verdict]:
    for contest in contests:
        if contest.pairs:
            pair = contest.pairs[0]
            yield Verdict(contest, OURS, _questions(contest, pair, pair.ours))
            yield Verdict(contest, contest.peer, _questions(contest, pair, pair.peer))
            if contest.scenario.adapters:
                exchanged = [
                    (prompt, tokens, adapters[(adapters.index(name) + 1) % len(adapters)])
                    for prompt, tokens, name in _questions(contest, pair, pair.ours)
                ]
                yield Verdict(contest, WRONG, exchanged)


def _questions(contest: Contest, pair: Pair, run: Run) -> list[Question]:
    n_answers = MAX_ANSWERS if contest.scenario.adapters else MAX_BASE_ANSWERS
    answers = zip(pair.asks[:n_answers], run.tokens, strict=False)
    return [(ask.prompt, tokens, ask.adapter) for ask, tokens in answers]
