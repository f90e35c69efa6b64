"""Grafana dashboards as values: a row of panels, each of a few expressions; and the JSON that Grafana reads.

Only what our boards use of Grafana's model (version 39, Grafana 10 and later) is here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

Unit = Literal["short", "s", "bytes", "Bps", "reqps", "percentunit", "ops", "none"]
Kind = Literal["timeseries", "stat", "bargauge"]

SCHEMA: Final = 39
WIDTH: Final = 24
HEIGHT: Final = 8
SOURCE: Final = {"type": "prometheus", "uid": "${source}"}
RANGE: Final = "$__rate_interval"


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression; `legend` names its series."""

    expression: str
    legend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """`text` says what one sees and when to worry."""

    title: str
    text: str
    queries: Sequence[Query]
    unit: Unit = "short"
    kind: Kind = "timeseries"
    stacked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """One dashboard; `uid` is its file's name and its address in Grafana."""

    uid: str
    title: str
    text: str
    rows: Sequence[Sequence[Panel]]

    @property
    def panels(self) -> list[Panel]:
        return [panel for row in self.rows for panel in row]


def rate(metric: str, by: str = "", where: str = "") -> str:
    """Of a counter, a second, summed over processes."""
    return _summed(f"rate({metric}{_braces(where)}[{RANGE}])", by)


def quantile(share: float, histogram: str, by: str = "", where: str = "") -> str:
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, {_summed(f'rate({histogram}_bucket{_braces(where)}[{RANGE}])', labels)})"


def quantiles(histogram: str, by: str = "", where: str = "") -> list[Query]:
    """Median, p90 and p99, never a mean alone."""
    suffix = "".join(f" {{{{{label}}}}}" for label in by.split(", ") if label)
    return [
        Query(quantile(share, histogram, by, where), f"{name}{suffix}")
        for share, name in ((0.5, "p50"), (0.9, "p90"), (0.99, "p99"))
    ]


def grafana(board: Board) -> dict[str, Any]:
    """The board as Grafana imports it; the data source is a variable."""
    panels: list[dict[str, Any]] = []
    for y, row in enumerate(board.rows):
        width = WIDTH // len(row)
        for x, panel in enumerate(row):
            place = {"x": x * width, "y": y * HEIGHT, "w": width, "h": HEIGHT}
            panels.append({"id": len(panels) + 1, "gridPos": place, **_panel(panel)})
    return {
        "uid": board.uid,
        "title": board.title,
        "description": board.text,
        "tags": ["lorikeet"],
        "schemaVersion": SCHEMA,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [{"name": "source", "label": "Source", "type": "datasource", "query": "prometheus"}]},
        "panels": panels,
    }


def _panel(panel: Panel) -> dict[str, Any]:
    custom = {"stacking": {"mode": "normal"}, "fillOpacity": 30} if panel.stacked else {}
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": custom}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": SOURCE,
                "expr": query.expression,
                "legendFormat": query.legend or "__auto",
                "instant": panel.kind != "timeseries",
            }
            for number, query in enumerate(panel.queries)
        ],
    }


def _summed(expression: str, by: str) -> str:
    return f"sum by ({by}) ({expression})" if by else f"sum({expression})"


def _braces(where: str) -> str:
    return f"{{{where}}}" if where else ""
