"""What tenants take from each other, and whether all of it is on record."""

from __future__ import annotations

from typing import Final

from lorikeet_platform.tools.monitoring.panels import RANGE, Board, Panel, Query, quantiles, rate

FAIRNESS: Final = Board(
    uid="lorikeet-fairness",
    title="Lorikeet / Fairness",
    text="Does one tenant slow another? Tenants with series of their own are the busiest ones.",
    rows=[
        [
            Panel(
                title="Jain's index",
                text="Of the weighted service of tenants that competed in the last minute: 1 = all equal.",
                queries=[Query("min(lorikeet_fairness_index)", "fairness")],
            ),
            Panel(
                title="Spread of service",
                text="Weighted tokens between the most and the least served tenant at work.",
                queries=[Query("max(lorikeet_engine_service_spread)", "spread")],
            ),
            Panel(
                title="Tokens by tenant",
                text="Settled; everybody else is `other`.",
                queries=[Query(rate("lorikeet_gateway_tenant_tokens_total", "tenant"), "{{tenant}}")],
                unit="ops",
                stacked=True,
            ),
        ],
        [
            Panel(
                title="Waiting by tenant",
                text="Requests in the engine's queue.",
                queries=[Query("sum by (tenant) (lorikeet_tenant_waiting_requests)", "{{tenant}}")],
                stacked=True,
            ),
            Panel(
                title="Running by tenant",
                text="Seats of the batch.",
                queries=[Query("sum by (tenant) (lorikeet_tenant_running_requests)", "{{tenant}}")],
                stacked=True,
            ),
            Panel(
                title="Memory by tenant",
                text="KV pool and arena together.",
                queries=[Query("sum by (tenant) (lorikeet_tenant_pool_bytes)", "{{tenant}}")],
                unit="bytes",
                stacked=True,
            ),
        ],
    ],
)

BOOKS: Final = Board(
    uid="lorikeet-books",
    title="Lorikeet / Metering and jobs",
    text="Is everything that was used on record, once?",
    rows=[
        [
            Panel(
                title="Books that disagree",
                text="Anything but 0 is a page.",
                queries=[Query("max(lorikeet_ledger_mismatch)", "sums")],
                kind="stat",
            ),
            Panel(
                title="Until use is on record",
                text="From a request's end.",
                queries=quantiles("lorikeet_usage_settle_lag_seconds"),
                unit="s",
            ),
            Panel(
                title="Not on record yet",
                text="At gateways, and in the engines' memory; an engine takes no more requests at 65536.",
                queries=[
                    Query("sum(lorikeet_usage_open)", "open at gateways"),
                    Query("sum(lorikeet_engine_unsettled_requests)", "ended in engines"),
                ],
            ),
        ],
        [
            Panel(
                title="Settled by whom",
                text="Gateways settle their own; the rest is what was saved after one died.",
                queries=[Query(f"max by (settled_by) (rate(lorikeet_usage_settled_total[{RANGE}]))", "{{settled_by}}")],
                unit="ops",
            ),
            Panel(
                title="Jobs",
                text="Not done, by kind and state.",
                queries=[Query("max by (kind, state) (lorikeet_jobs)", "{{kind}} {{state}}")],
                stacked=True,
            ),
            Panel(
                title="Oldest waiting job, open uploads",
                text="A job that has waited for five minutes has no worker.",
                queries=[
                    Query("max by (kind) (lorikeet_job_age_seconds)", "{{kind}}, s"),
                    Query("max(lorikeet_uploads_open)", "uploads"),
                ],
            ),
        ],
    ],
)
