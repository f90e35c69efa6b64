"""What each written file shall hold: dashboards, alerts, and the table of metrics."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from typing import Final

import yaml
from prometheus_client import CollectorRegistry

from lorikeet_engine.metrics import EngineCollector, families, process
from lorikeet_engine.simulation.shipped import load_device
from lorikeet_engine.stats import EngineStats
from lorikeet_platform.db.migrate import upgrade
from lorikeet_platform.db.session import Database
from lorikeet_platform.doctor.metrics import FindingFigures
from lorikeet_platform.doctor.schemas import Findings
from lorikeet_platform.telemetry.metrics import GatewayMetrics
from lorikeet_platform.telemetry.stock import StockFigures
from lorikeet_platform.tools.monitoring.alerts import prometheus
from lorikeet_platform.tools.monitoring.boards import BOARDS
from lorikeet_platform.tools.monitoring.catalogue import Entry, entries, markdown
from lorikeet_platform.tools.monitoring.nothing import nothing
from lorikeet_platform.tools.monitoring.panels import grafana
from lorikeet_platform.usage.work.figures import ledger_metrics

BOARDS_DIR: Final = "helm/lorikeet/dashboards"
ALERTS_FILE: Final = "helm/lorikeet/alerts/lorikeet.yaml"
METRICS_FILE: Final = "docs/metrics.md"


def contents() -> Mapping[str, str]:
    """By the file's place in the source tree."""
    boards = {f"{BOARDS_DIR}/{board.uid}.json": json.dumps(grafana(board), indent=2) + "\n" for board in BOARDS}
    alerts = yaml.safe_dump(prometheus(), sort_keys=False, width=120, allow_unicode=True)
    return {**boards, ALERTS_FILE: alerts, METRICS_FILE: markdown(gateway_metrics(), engine_metrics())}


def gateway_metrics() -> list[Entry]:
    """Of everything that registers on a gateway's registry; its database is empty."""
    registry = CollectorRegistry()
    GatewayMetrics(registry)
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/empty.db"
        upgrade(url)
        db = Database(url)
        try:
            ledger_metrics(registry, db)
            registry.register(StockFigures(db))
            registry.register(FindingFigures(lambda: Findings(examined_s=None, at=None, findings=[])))
            return entries(registry)
        finally:
            db.close()


def engine_metrics() -> list[Entry]:
    """Of an engine that has done nothing: every name is there."""
    registry = CollectorRegistry()
    EngineCollector(lambda: (*families(nothing(EngineStats)), *process(load_device("cpu2"), turn_age_s=0.0)), registry)
    return entries(registry)
