"""What callers see, and who is turned away."""

from __future__ import annotations

from typing import Final

from lorikeet_platform.tools.monitoring.alerts import FAILED, TENANTS
from lorikeet_platform.tools.monitoring.panels import Board, Panel, Query, quantile, quantiles, rate

REQUESTS: Final = "lorikeet_gateway_requests_total"
INFERENCE: Final = 'route=~"/v1/(chat/)?completions"'

SERVICE: Final = Board(
    uid="lorikeet-service",
    title="Lorikeet / Service",
    text="Is it up, is it fast, and whose fault is it if not?",
    rows=[
        [
            Panel(
                title="Requests",
                text="Answers by status. 429 and 503 are refusals: nothing was billed.",
                queries=[Query(rate(REQUESTS, "status", INFERENCE), "{{status}}")],
                unit="reqps",
                stacked=True,
            ),
            Panel(
                title="Failed",
                text="Answers that were 5xx but no refusals (503). The objective is below 0.05 % of a month.",
                queries=[Query(f"{rate(REQUESTS, where=FAILED)} / {rate(REQUESTS, where=TENANTS)}", "5xx")],
                unit="percentunit",
            ),
            Panel(
                title="How generations ended",
                text="As in their usage records; `shed` and `server_error` are ours.",
                queries=[Query(rate("lorikeet_gateway_generations_total", "outcome"), "{{outcome}}")],
                unit="reqps",
                stacked=True,
            ),
        ],
        [
            Panel(
                title="Time to first token",
                text="At the gateway: from the prepared request, waiting in the engine included.",
                queries=quantiles("lorikeet_gateway_ttft_seconds", "kind"),
                unit="s",
            ),
            Panel(
                title="Whole answers",
                text="Until the last token; as long as the answers are.",
                queries=quantiles("lorikeet_gateway_e2e_seconds", "kind"),
                unit="s",
            ),
            Panel(
                title="Event loop's lag",
                text="Above 0.1 s streams stutter.",
                queries=quantiles("lorikeet_gateway_event_loop_lag_seconds"),
                unit="s",
            ),
        ],
        [
            Panel(
                title="Findings",
                text="What the doctor sees now. `lorikeet doctor` has evidence and remedy.",
                queries=[Query("max by (rule) (lorikeet_findings) == 1", "{{rule}}")],
                kind="bargauge",
            ),
            Panel(
                title="Tokens",
                text="Settled ones; cached is the part of the prompts that cost next to nothing.",
                queries=[
                    Query(rate("lorikeet_gateway_tokens_total", "type"), "{{type}}"),
                    Query(rate("lorikeet_gateway_cached_tokens_total"), "cached"),
                ],
                unit="ops",
            ),
            Panel(
                title="Generations in flight",
                text="Open usage records, by gateway.",
                queries=[Query("lorikeet_gateway_generations_in_flight", "{{instance}}")],
                stacked=True,
            ),
        ],
    ],
)

SECURITY: Final = Board(
    uid="lorikeet-security",
    title="Lorikeet / Security and limits",
    text="Who is turned away, and how fast a revocation works.",
    rows=[
        [
            Panel(
                title="Keys",
                text="Callers by what came of their key.",
                queries=[Query(rate("lorikeet_gateway_authentications_total", "result"), "{{result}}")],
                unit="reqps",
                stacked=True,
            ),
            Panel(
                title="Revocations, p99",
                text="From a revocation until a gateway heard of it. The objective is 1 s, never above 5 s.",
                queries=[Query(quantile(0.99, "lorikeet_gateway_key_revocation_propagation_seconds"), "p99")],
                unit="s",
            ),
            Panel(
                title="Refused by limits",
                text="By dimension.",
                queries=[
                    Query(
                        rate("lorikeet_gateway_ratelimit_decisions_total", "dimension", 'decision="refused"'),
                        "{{dimension}}",
                    ),
                    Query(rate("lorikeet_budget_refusals_total"), "monthly tokens"),
                ],
                unit="reqps",
                stacked=True,
            ),
        ],
    ],
)
