"""Every metric that gateway and engine show, read off their registries: name, kind, labels, meaning."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Metric

SUFFIXES: Final = {"counter": "_total"}
HEAD: Final = """# Metrics

Written by `make monitoring` from the programs themselves; nothing here is typed by hand. Dashboards and alerts over
them lie in `helm/lorikeet/dashboards` and `helm/lorikeet/alerts`.

Each process shows its own: gateways at `/metrics` of the admin port, engines at `/metrics` of their health port.
Nothing is shared between processes and none forks, so no figure is counted twice; what stands in the database, every
gateway shows alike (take the largest). Tenants and adapters are labels for the busiest only, all others are `other`;
exact figures by tenant are in the usage API.
"""


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """One metric; `name` is what queries say (of a histogram, its stem)."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


def entries(registry: CollectorRegistry) -> list[Entry]:
    """Those of our own. Labels of a metric that has no value yet are known from the object that makes them."""
    found = {entry.name: entry for collected in _collectors(registry) for entry in collected}
    return sorted(found.values())


def markdown(gateway: list[Entry], engine: list[Entry]) -> str:
    """The whole page."""
    return "\n".join([HEAD, *_table("Gateway", gateway), "", *_table("Engine", engine), ""])


def _collectors(registry: CollectorRegistry) -> Iterable[list[Entry]]:
    for collector in list(registry._collector_to_names):
        own = tuple(getattr(collector, "_labelnames", ()))
        yield [_entry(family, own) for family in collector.collect() if family.name.startswith("lorikeet_")]


def _entry(family: Metric, own: tuple[str, ...]) -> Entry:
    of_samples = {label: None for sample in family.samples for label in sample.labels if label != "le"}
    labels = own or tuple(getattr(family, "_labelnames", ())) or tuple(of_samples)
    return Entry(family.name + SUFFIXES.get(family.type, ""), family.type, labels, family.documentation.rstrip("."))


def _table(title: str, rows: list[Entry]) -> list[str]:
    lines = [f"## {title}", "", "| metric | kind | labels | meaning |", "| --- | --- | --- | --- |"]
    for row in rows:
        labels = ", ".join(f"`{label}`" for label in row.labels)
        lines.append(f"| `{row.name}` | {row.kind} | {labels} | {row.meaning} |")
    return lines
