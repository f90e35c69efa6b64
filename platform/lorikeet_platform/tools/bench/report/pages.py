"""Which pages a run has: what its record can show, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lorikeet_engine.experiments.lines import LENGTH
from lorikeet_engine.experiments.measures import Outcome
from lorikeet_engine.experiments.record import RunRecord
from lorikeet_platform.tools.bench.report.page import Page, Panel, over_name
from lorikeet_platform.tools.bench.report.panels import device, joined, latency, lengths, points, time
from lorikeet_platform.tools.bench.summary import served_part


def pages_of(record: RunRecord, prefix: str) -> list[Page]:
    """Of one run; their files' names begin with `prefix`."""
    record = served_part(record)
    if not record.points:
        return []
    title = f"{record.name}: {record.target}"
    pages = [
        Page(f"{prefix}points", title, _there(_points(record))),
        Page(f"{prefix}exchange", f"{title}: what is traded for what", _exchange(record)),
        Page(f"{prefix}device", f"{title}: prefill and decode", device.device_panels(record)),
        *(
            Page(f"{prefix}time{suffix}", f"{title}{words}", _there(_time(record, outcome)))
            for outcome, suffix, words in _looked_at(record)
        ),
    ]
    return [page for page in pages if page.panels]


def shared_pages(records: Sequence[RunRecord]) -> list[Page]:
    """Of several runs together."""
    records = [part for record in records if (part := served_part(record)).points]
    pages = [
        Page("occupancy", "Several loads on the axis of KV occupancy", joined.occupancy_panels(records)),
        Page("comparison", "Runs beside one another", joined.comparison_panels(records)),
        Page("repeatability", "The same setup, run again", _there([joined.repeated_panel(records)])),
    ]
    return [page for page in pages if page.panels]


def _points(record: RunRecord) -> Iterable[Panel | None]:
    if len(record.points) < 2:
        return []
    return [
        lengths.kv_panel(record),
        lengths.itl_panel(record),
        lengths.bandwidth_panel(record),
        points.split_panel(record),
        points.throughput_panel(record),
        points.utilisation_panel(record),
        points.ttft_panel(record),
        points.itl_percentiles_panel(record),
        points.series_panel(record),
    ]


def _exchange(record: RunRecord) -> list[Panel]:
    """Where the axis is a setting or a load; longer prompts trade nothing for anything."""
    return points.exchange_panels(record) if record.axis not in ("", LENGTH) else []


def _looked_at(record: RunRecord) -> list[tuple[Outcome, str, str]]:
    """The only point, or the first and the last of the first series."""
    if not record.axis:
        return [(Outcome(point), f"-{i}" if i else "", "") for i, point in enumerate(record.points[:1])]
    series = points.first_series(record)
    if series is None:
        return []
    shown = points.ordered(series, record.axis)
    return [
        (outcome, f"-{outcome.setup[record.axis]:g}", f", {over_name(record.axis)} {outcome.setup[record.axis]:,}")
        for outcome in (shown[0], shown[-1])
        if isinstance(outcome.setup[record.axis], int | float)
    ]


def _time(record: RunRecord, outcome: Outcome) -> list[Panel | None]:
    return [
        *((latency.percentiles_panel(outcome), latency.split_panel(outcome)) if not record.axis else ()),
        time.memory_panel(outcome),
        time.requests_panel(outcome),
        time.opening_panel(outcome),
        time.utilisation_panel(outcome, record.machine),
        time.mix_panel(outcome),
        time.tokens_panel(outcome),
        time.first_tokens_panel(outcome),
        latency.gaps_panel(outcome),
        latency.tenants_panel(outcome),
    ]


def _there(panels: Iterable[Panel | None]) -> list[Panel]:
    return [panel for panel in panels if panel is not None]
