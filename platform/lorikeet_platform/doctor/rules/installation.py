"""What is wrong around the engine: nobody answers, books that disagree, rates that are not counted together."""

from __future__ import annotations

from typing import Final

from lorikeet_platform.doctor.evidence import words
from lorikeet_platform.doctor.examined import Surroundings
from lorikeet_platform.doctor.schemas import Cost, Evidence, Finding

AWAY_S: Final = 10.0
STARTING_S: Final = 240.0  # a large model's weights are read for minutes


def engine_away(around: Surroundings) -> Finding | None:
    """No engine answers this gateway."""
    if around.away_s is None or around.away_s < (AWAY_S if around.has_answered else STARTING_S):
        return None
    return Finding(
        rule="engine_away",
        severity="critical",
        title="No engine answers",
        explanation="Every request is answered 503 until one does; nothing else can be said about it meanwhile.",
        evidence=[
            Evidence(label="for", value=words.seconds(around.away_s)),
            Evidence(label="answered before", value="yes" if around.has_answered else "not since this gateway started"),
        ],
        cost=Cost(text="all requests", share=1.0),
        remedy="See whether the engine runs and what its log says; both sides need the same LORIKEET_ENGINE_ENDPOINT.",
        setting=None,
    )


def books_disagree(around: Surroundings) -> Finding | None:
    """Usage records, budgets and roll-ups do not say the same."""
    if not around.books_mismatches:
        return None
    return Finding(
        rule="books_disagree",
        severity="critical",
        title="The ledger's books disagree",
        explanation="Settled records, budgets and roll-ups count the same tokens and must add up to the same.",
        evidence=[Evidence(label="sums that differ", value=words.count(around.books_mismatches))],
        cost=Cost(text="what is shown, and what budgets allow, may be wrong for these", share=None),
        remedy="Look for `the ledger's books disagree` in the worker's log: it names tenants and sums.",
        setting=None,
    )


def rates_degraded(around: Surroundings) -> Finding | None:
    """Redis does not answer, so every gateway counts its share of the rates alone."""
    if not around.rates_degraded:
        return None
    return Finding(
        rule="rates_degraded",
        severity="warning",
        title="Gateways count rates alone",
        explanation="Redis is lost or slow; until it is back each gateway allows its own share.",
        evidence=[Evidence(label="counted together", value="no")],
        cost=Cost(text="limits of rates are kept less exactly", share=None),
        remedy="See whether the Redis of LORIKEET_REDIS_URL answers.",
        setting=None,
    )
