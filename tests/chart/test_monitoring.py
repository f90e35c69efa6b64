"""What the chart gives to Grafana and to the Prometheus operator is what lies in its folders, and finds its targets."""

from __future__ import annotations

import json
from typing import Any

import helm_python
import pytest
import yaml

from tests.support.chart_release import CHART_DIR, Release, render, selects

PEERS = [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]
ON: dict[str, dict[str, Any]] = {
    "monitoring": {"dashboards": {"enabled": True}, "operator": {"enabled": True, "labels": {"release": "prometheus"}}},
    "networkPolicy": {"adminFrom": PEERS, "engineMetricsFrom": PEERS},
}


@pytest.fixture(scope="module")
def monitored() -> Release:
    return render(ON)


def test_nothing_is_there_unless_it_is_asked_for() -> None:
    kinds = {document["kind"] for document in render({}).documents}
    assert not kinds & {"ServiceMonitor", "PrometheusRule"}
    assert not [d for d in render({}).of_kind("ConfigMap") if d["metadata"]["name"].endswith("-board")]


def test_every_dashboard_is_a_config_map_that_the_sidecar_finds(monitored: Release) -> None:
    maps = [d for d in monitored.of_kind("ConfigMap") if d["metadata"]["name"].endswith("-board")]
    given = {name: json.loads(text) for document in maps for name, text in document["data"].items()}
    assert given == {path.name: json.loads(path.read_text()) for path in (CHART_DIR / "dashboards").iterdir()}
    assert all(document["metadata"]["labels"]["grafana_dashboard"] == "1" for document in maps)


def test_the_operators_rule_holds_the_alerts(monitored: Release) -> None:
    (rule,) = monitored.of_kind("PrometheusRule")
    assert rule["spec"] == yaml.safe_load((CHART_DIR / "alerts" / "lorikeet.yaml").read_text())
    assert rule["metadata"]["labels"]["release"] == "prometheus"


def test_each_monitor_selects_a_service_with_the_port_that_it_reads(monitored: Release) -> None:
    monitors = monitored.of_kind("ServiceMonitor")
    assert len(monitors) == 2
    for monitor in monitors:
        (endpoint,) = monitor["spec"]["endpoints"]
        services = [
            service
            for service in monitored.of_kind("Service")
            if selects(monitor["spec"]["selector"]["matchLabels"], service["metadata"]["labels"])
        ]
        assert [endpoint["port"] in {port["name"] for port in s["spec"]["ports"]} for s in services].count(True) == 1


@pytest.mark.parametrize("missing", ["adminFrom", "engineMetricsFrom"])
def test_a_prometheus_that_the_network_keeps_out_is_refused_by_name(missing: str) -> None:
    values: dict[str, Any] = {**ON, "networkPolicy": {k: v for k, v in ON["networkPolicy"].items() if k != missing}}
    with pytest.raises(helm_python.HelmError, match=f"networkPolicy.{missing}: needed"):
        render(values)
