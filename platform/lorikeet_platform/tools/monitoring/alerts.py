"""Prometheus alerts: what pages somebody, and what waits for the morning. Thresholds are the design's objectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

AVAILABILITY: Final = 0.9995  # of requests, a month
TENANTS: Final = 'route=~"/v1/.*"'  # probes and scrapes are nobody's requests
FAILED: Final = f'{TENANTS}, status=~"5..", status!="503"'  # a 503 is a refusal in time; an engine that is away pages


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """`wait`: how long the expression must hold. `text` says what it means and what to do first."""

    name: str
    expression: str
    wait: str
    severity: Literal["page", "ticket"]
    summary: str
    text: str


def _burns(times: float, long: str, short: str) -> str:
    """Errors use up the month's allowance so many times too fast, over a long window and still over a short one."""
    share = (
        "sum(rate(lorikeet_gateway_requests_total{{{failed}}}[{window}]))"
        " / sum(rate(lorikeet_gateway_requests_total{{{tenants}}}[{window}]))"
    )
    bound = f"> {times} * {1 - AVAILABILITY:.4f}"
    shares = [share.format(failed=FAILED, tenants=TENANTS, window=window) for window in (long, short)]
    return " and ".join(f"({burnt} {bound})" for burnt in shares)


SERVICE: Final[Sequence[Alert]] = (
    Alert(
        name="LorikeetErrorsBurnFast",
        expression=_burns(14.4, "1h", "5m"),
        wait="2m",
        severity="page",
        summary="Two per cent of a month's errors in an hour",
        text="Requests fail with 5xx. See the board Lorikeet / Service by route and status, then the gateways' log.",
    ),
    Alert(
        name="LorikeetErrorsBurn",
        expression=_burns(6, "6h", "30m"),
        wait="15m",
        severity="page",
        summary="Five per cent of a month's errors in six hours",
        text="Requests fail with 5xx, slowly. See the board Lorikeet / Service by route and status.",
    ),
    Alert(
        name="LorikeetEngineAway",
        expression="absent(lorikeet_engine_uptime_seconds)",
        wait="1m",
        severity="page",
        summary="No engine answers",
        text="No engine's metrics are there: it is down, still loading, or Prometheus does not reach port 8100.",
    ),
    Alert(
        name="LorikeetEngineHangs",
        expression="max by (instance) (lorikeet_engine_last_turn_age_seconds) > 30",
        wait="0m",
        severity="page",
        summary="An engine's loop has not turned for half a minute",
        text="A step hangs in the device or in a library. After two minutes the liveness probe ends the process.",
    ),
    Alert(
        name="LorikeetEngineStandsStill",
        expression=(
            "lorikeet_engine_waiting_requests > 0 and on (instance)"
            " sum by (instance) (rate(lorikeet_engine_steps_total[2m])) == 0"
        ),
        wait="1m",
        severity="page",
        summary="Requests wait and the engine computes nothing",
        text="Look for an adapter that cannot be loaded (adapter_stall_seconds) or a device that was lost (its log).",
    ),
    Alert(
        name="LorikeetEngineRestarts",
        expression="resets(lorikeet_engine_uptime_seconds[15m]) > 3",
        wait="0m",
        severity="page",
        summary="The engine restarted more than three times in a quarter of an hour",
        text="Its last lines say why; most often the memory of the container is smaller than the table at its start.",
    ),
    Alert(
        name="LorikeetRefusesWork",
        expression=(
            "(sum(rate(lorikeet_refusals_total[10m])) or vector(0))"
            " + (sum(rate(lorikeet_expired_requests_total[10m])) or vector(0))"
            f" > 0.05 * (sum(rate(lorikeet_gateway_requests_total{{{TENANTS}}}[10m])) or vector(0))"
        ),
        wait="10m",
        severity="ticket",
        summary="The engine refuses more than one request in twenty",
        text="It is full. `lorikeet doctor` names the wall, `lorikeet plan --live` how many replicas the load needs.",
    ),
    Alert(
        name="LorikeetFinding",
        expression="max by (rule) (lorikeet_findings) == 1",  # the doctor has seen it more than once by then
        wait="2m",
        severity="ticket",
        summary="The doctor has found something: {{ $labels.rule }}",
        text="`lorikeet doctor` shows the evidence, what it costs, and the setting that mends it.",
    ),
    Alert(
        name="LorikeetLoopIsLate",
        expression=(
            "histogram_quantile(0.99, sum by (le) (rate(lorikeet_gateway_event_loop_lag_seconds_bucket[10m]))) > 0.1"
        ),
        wait="10m",
        severity="ticket",
        summary="A gateway's event loop is late by more than 0.1 s",
        text="Streams stutter. Add gateways, or give them more processor time.",
    ),
)

BOOKS: Final[Sequence[Alert]] = (
    Alert(
        name="LorikeetBooksDisagree",
        expression="max(lorikeet_ledger_mismatch) > 0",
        wait="0m",
        severity="page",
        summary="Usage records, budgets and roll-ups do not agree",
        text="`lorikeet jobs chores` shows the last comparison; bills of the tenants it names are not to be sent.",
    ),
    Alert(
        name="LorikeetSettlesLate",
        expression=("histogram_quantile(0.99, sum by (le) (rate(lorikeet_usage_settle_lag_seconds_bucket[10m]))) > 60"),
        wait="5m",
        severity="page",
        summary="Usage is on record a minute late",
        text="The database is slow or away. Nothing is lost: engines remember up to 65536 requests, then take no more.",
    ),
    Alert(
        name="LorikeetUnsettledPileUp",
        expression="max(lorikeet_engine_unsettled_requests) > 32768",
        wait="5m",
        severity="page",
        summary="Half of what an engine can remember is not on record",
        text="At 65536 it takes no more requests. See LorikeetSettlesLate, and whether a worker runs (`usage.outbox`).",
    ),
    Alert(
        name="LorikeetSettlementsContradict",
        expression="max(increase(lorikeet_usage_conflict_total[1h])) > 0",
        wait="0m",
        severity="ticket",
        summary="Two settlements of one request said different things",
        text="The first one counts. The log of gateway and worker has both.",
    ),
    Alert(
        name="LorikeetJobsWait",
        expression="max by (kind) (lorikeet_job_age_seconds) > 300",
        wait="1m",
        severity="ticket",
        summary="Jobs of kind {{ $labels.kind }} have waited for five minutes",
        text="No worker runs, or all are busy. `lorikeet jobs list` shows them.",
    ),
)

SECURITY: Final[Sequence[Alert]] = (
    Alert(
        name="LorikeetRevocationIsSlow",
        expression=(
            "histogram_quantile(0.99, sum by (le)"
            " (rate(lorikeet_gateway_key_revocation_propagation_seconds_bucket[10m]))) > 3"
        ),
        wait="0m",
        severity="page",
        summary="Revoked keys still worked for seconds",
        text="The database's notices reach gateways late; after 5 s at most they ask by themselves.",
    ),
    Alert(
        name="LorikeetRatesAreShared",
        expression="max(lorikeet_gateway_ratelimit_degraded) == 1",
        wait="5m",
        severity="ticket",
        summary="Redis is lost: each gateway counts its share of the rates alone",
        text="Limits hold on the average; a tenant whose requests meet one gateway only has less than it paid for.",
    ),
    Alert(
        name="LorikeetKeysAreGuessed",
        expression=(
            'sum(rate(lorikeet_gateway_authentications_total{result="invalid_api_key"}[10m]))'
            ' > 10 * (sum(rate(lorikeet_gateway_authentications_total{result="invalid_api_key"}[1d] offset 1h))'
            " or vector(0)) + 1"
        ),
        wait="10m",
        severity="ticket",
        summary="Ten times as many wrong keys as usual",
        text=(
            "Somebody tries keys, or a customer's deployment has an old one. What one address may try is bounded;"
            " the proxy's log has the addresses."
        ),
    ),
)

GROUPS: Final[dict[str, Sequence[Alert]]] = {
    "lorikeet-service": SERVICE,
    "lorikeet-books": BOOKS,
    "lorikeet-security": SECURITY,
}


def prometheus() -> dict[str, Any]:
    """The rule file as Prometheus, and its operator, read it."""
    return {"groups": [{"name": name, "rules": [_rule(alert) for alert in alerts]} for name, alerts in GROUPS.items()]}


def _rule(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.wait,
        "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.summary, "description": alert.text},
    }
