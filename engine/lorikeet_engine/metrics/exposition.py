"""Writes metrics in Prometheus' text format, version 0.0.4.

What `prometheus_client` does for one bucket takes longer than a line of text should: with thousands of buckets a scrape
would hold the interpreter, and so the loop, for a tenth of a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from lorikeet_engine.metrics.shapes import HistogramFamily

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


def render(families: Iterable[Metric | HistogramFamily]) -> bytes:
    lines: list[str] = []
    for family in families:
        lines += _histograms(family) if isinstance(family, HistogramFamily) else _samples(family)
    return "".join(lines).encode()


def _samples(metric: Metric) -> Iterator[str]:
    name = f"{metric.name}_total" if metric.type == "counter" else metric.name
    yield from _head(name, metric.documentation, metric.type)
    for sample in metric.samples:
        labels = ",".join(f'{label}="{_escaped(value)}"' for label, value in sample.labels.items())
        yield f"{sample.name}{'{' + labels + '}' if labels else ''} {float(sample.value)!r}\n"


def _histograms(family: HistogramFamily) -> Iterator[str]:
    name = family.name
    yield from _head(name, family.text, "histogram")
    for label, (counts, sum_s) in family.series.items():
        whose = f'{family.label}="{_escaped(label)}"'
        start = f'{name}_bucket{{{whose},le="'
        for bucket, count in zip(family.buckets, counts, strict=True):
            yield f'{start}{bucket}"}} {count}\n'
        yield f"{name}_count{{{whose}}} {counts[-1]}\n"
        yield f"{name}_sum{{{whose}}} {sum_s!r}\n"


def _head(name: str, text: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {text}\n"
    yield f"# TYPE {name} {kind}\n"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
