"""Dashboards, alerts and the table of metrics are what the programs say, and ask only for what the programs show."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client import CollectorRegistry

from lorikeet_engine.metrics import EngineCollector, families, process
from lorikeet_engine.stats import EngineStats
from lorikeet_platform.tools.monitoring.alerts import GROUPS, Alert, prometheus
from lorikeet_platform.tools.monitoring.boards import BOARDS
from lorikeet_platform.tools.monitoring.catalogue import Entry, entries
from lorikeet_platform.tools.monitoring.files import contents, engine_metrics, gateway_metrics
from lorikeet_platform.tools.monitoring.nothing import nothing
from lorikeet_platform.tools.monitoring.panels import RANGE, grafana
from tests.support.engine_figures import engine_stats
from tests.support.scripted_engine_parts import PROFILE

ROOT = Path(__file__).parents[3]
# What Prometheus itself, or the discovery of targets, puts on every series.
ANYWHERE = {"instance", "job", "le"}
EXPRESSIONS = [
    *(pytest.param(q.expression, id=f"{b.uid}: {p.title}") for b in BOARDS for p in b.panels for q in p.queries),
    *(pytest.param(alert.expression, id=alert.name) for alerts in GROUPS.values() for alert in alerts),
]


@cache
def known() -> Mapping[str, Entry]:
    """Every series by the name that queries use; a histogram has three."""
    found: dict[str, Entry] = {}
    for entry in (*gateway_metrics(), *engine_metrics()):
        names = [entry.name + suffix for suffix in ("_bucket", "_sum", "_count")]
        found |= dict.fromkeys(names if entry.kind == "histogram" else [entry.name], entry)
    return found


def selectors(node: Any) -> Iterator[Any]:
    """Every series that an expression asks for."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    elif isinstance(node, promql_parser.MatrixSelector):
        yield node.vector_selector
    elif isinstance(node, promql_parser.Call):
        for argument in node.args:
            yield from selectors(argument)
    elif isinstance(node, promql_parser.BinaryExpr):
        yield from selectors(node.lhs)
        yield from selectors(node.rhs)
    elif not isinstance(node, promql_parser.NumberLiteral):
        yield from selectors(node.expr)


def grouped_by(node: Any) -> Iterator[tuple[str, set[str]]]:
    """Each label that an aggregation keeps, with the series below it."""
    if isinstance(node, promql_parser.AggregateExpr):
        below = {selector.name for selector in selectors(node.expr)}
        for label in node.modifier.labels if node.modifier else []:
            yield label, below
        yield from grouped_by(node.expr)
    elif isinstance(node, promql_parser.Call):
        for argument in node.args:
            yield from grouped_by(argument)
    elif isinstance(node, promql_parser.BinaryExpr):
        yield from grouped_by(node.lhs)
        yield from grouped_by(node.rhs)
    elif isinstance(node, promql_parser.ParenExpr):
        yield from grouped_by(node.expr)


def parsed(expression: str) -> Any:
    return promql_parser.parse(expression.replace(RANGE, "5m"))


def test_the_files_in_the_tree_are_those_that_the_programs_write() -> None:
    stale = [name for name, text in contents().items() if (ROOT / name).read_text() != text]
    assert stale == [], "run `make monitoring`"
    folder = ROOT / "helm/lorikeet/dashboards"
    assert {path.stem for path in folder.iterdir()} == {board.uid for board in BOARDS}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_asks_for_series_and_labels_that_there_are(expression: str) -> None:
    tree = parsed(expression)
    for selector in selectors(tree):
        assert selector.name in known()
        labels = {matcher.name for matcher in selector.matchers.matchers}
        assert labels <= ANYWHERE.union(known()[selector.name].labels)
    for label, names in grouped_by(tree):
        assert all(label in ANYWHERE.union(known()[name].labels) for name in names), label


def test_a_misspelt_series_would_be_noticed() -> None:
    with pytest.raises(ValueError, match="unclosed left parenthesis"):
        parsed("sum(rate(lorikeet_engine_steps_total[5m])")
    assert next(selectors(parsed("rate(lorikeet_engine_stepps_total[5m])"))).name not in known()


def test_legends_name_labels_that_their_expression_keeps() -> None:
    for board in BOARDS:
        for panel in board.panels:
            for query in panel.queries:
                wanted = set(re.findall(r"{{(\w+)}}", query.legend))
                kept = {label for label, _ in grouped_by(parsed(query.expression))}
                is_whole = "by (" not in query.expression and "sum(" not in query.expression
                assert is_whole or wanted <= kept, (board.uid, panel.title, query.legend)


def test_every_board_can_be_imported_and_no_panel_lies_over_another() -> None:
    for board in BOARDS:
        values = grafana(board)
        places = [panel["gridPos"] for panel in values["panels"]]
        cells = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
        assert len(cells) == len(set(cells))
        assert max(x for x, _ in cells) < 24
        assert len({panel["id"] for panel in values["panels"]}) == len(board.panels)
        assert [variable["name"] for variable in values["templating"]["list"]] == ["source"]


def test_every_alert_says_what_to_do_and_whom_to_wake() -> None:
    rules = [rule for group in prometheus()["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"].keys() == {"summary", "description"}
        assert re.fullmatch(r"\d+[mh]", rule["for"])
    assert yaml.safe_load((ROOT / "helm/lorikeet/alerts/lorikeet.yaml").read_text()) == prometheus()


def sums(node: Any) -> Iterator[Any]:
    """Both sides of every sum."""
    if isinstance(node, promql_parser.BinaryExpr):
        if str(node.op) == "+":
            yield from (node.lhs, node.rhs)
        yield from sums(node.lhs)
        yield from sums(node.rhs)
    elif isinstance(node, promql_parser.ParenExpr):
        yield from sums(node.expr)


@pytest.mark.parametrize("alert", [pytest.param(a, id=a.name) for alerts in GROUPS.values() for a in alerts])
def test_a_series_that_is_not_there_yet_silences_no_alert(alert: Alert) -> None:
    """What is added to an empty vector is empty: every part of a sum falls back to 0."""
    for part in sums(parsed(alert.expression)):
        assert not list(selectors(part)) or re.search(r"or\s+vector\(0", str(part))


def test_probes_and_scrapes_burn_no_errors() -> None:
    for alerts in GROUPS.values():
        for alert in alerts:
            for selector in selectors(parsed(alert.expression)):
                if selector.name == "lorikeet_gateway_requests_total":
                    assert ("route", "/v1/.*") in {(m.name, m.value) for m in selector.matchers.matchers}


def test_every_metric_of_a_working_engine_is_among_those_of_one_that_has_done_nothing() -> None:
    registry = CollectorRegistry()
    EngineCollector(lambda: (*families(engine_stats()), *process(PROFILE, turn_age_s=1.0)), registry)
    assert {entry.name for entry in entries(registry)} == {entry.name for entry in engine_metrics()}
    assert nothing(EngineStats).running == 0
