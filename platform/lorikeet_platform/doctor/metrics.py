"""The doctor's findings for /metrics: one line for every rule there is, so that a silent rule can be told apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from lorikeet_platform.doctor.catalogue import NAMES
from lorikeet_platform.doctor.schemas import Findings

FINDINGS: Final = "lorikeet_findings"


class FindingFigures(Collector):
    """Exports the outcome of the last examination."""

    def __init__(self, findings: Callable[[], Findings]) -> None:
        self._findings = findings

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        found = {finding.rule for finding in self._findings().findings}
        family = GaugeMetricFamily(FINDINGS, "1 while the rule finds something wrong.", labels=["rule"])
        for name in NAMES:
            family.add_metric([name], float(name in found))
        yield family
