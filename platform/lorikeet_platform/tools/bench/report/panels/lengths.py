"""What grows with the prompts' length: KV in use, time between tokens, and the bandwidth that its slope implies."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes

from lorikeet_engine.experiments.lines import (
    LENGTH,
    Series,
    implied_bandwidth,
    itl_line,
    kv_line,
    peak_tokens,
    series_of,
)
from lorikeet_engine.experiments.measures import Line, Outcome
from lorikeet_engine.experiments.record import Machine, RunRecord
from lorikeet_platform.tools.bench.report.page import (
    BLUE,
    COLOURS,
    GREY,
    PLAIN,
    TEAL,
    Panel,
    label,
    over_name,
    say_inside,
)

POINTS_OF_A_LINE = 3


def lines_of(record: RunRecord) -> list[Series]:
    """Series over the prompts' length that a line can be laid through."""
    if record.axis != LENGTH:
        return []
    return [
        series
        for series in series_of(record)
        if len({outcome.setup.get(LENGTH) for outcome in series.outcomes}) >= POINTS_OF_A_LINE
    ]


def has_kv(series: Series, machine: Machine) -> bool:
    return all(
        outcome.kv_peak is not None and (outcome.point.pool_tokens or machine.pool_tokens) is not None
        for outcome in series.outcomes
    )


def slope_error(points: Sequence[tuple[float, float]], line: Line) -> float:
    """The slope's standard error, from how far the points lie off the line."""
    n = len(points)
    mean_x = sum(x for x, _ in points) / n
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    off = sum((y - line.intercept - line.slope * x) ** 2 for x, y in points)
    return math.sqrt(off / (n - 2) / spread) if n > 2 else 0.0


def kv_points(series: Series, machine: Machine) -> list[tuple[float, float]]:
    return [(float(o.setup[LENGTH]), peak_tokens(o, machine.pool_tokens)) for o in series.outcomes]


def itl_points(series: Series) -> list[tuple[float, float]]:
    return [(float(o.setup[LENGTH]), o.gap_at(0.5)) for o in series.outcomes]


def named(series: Series) -> str:
    return ", ".join(f"{over_name(name)} {value}" for name, value in series.named.items())


def clients_of(outcomes: Sequence[Outcome]) -> int | None:
    clients = {outcome.setup.get("concurrency") for outcome in outcomes}
    value = clients.pop() if len(clients) == 1 else None
    return value if isinstance(value, int) else None


def kv_panel(record: RunRecord) -> Panel | None:
    found = [series for series in lines_of(record) if has_kv(series, record.machine)]
    if not found:
        return None

    def draw(axes: Axes) -> None:
        for series, colour in zip(found, COLOURS, strict=False):
            line, points = kv_line(series.outcomes, record.machine.pool_tokens), kv_points(series, record.machine)
            lengths = [x for x, _ in points]
            axes.plot(lengths, [y for _, y in points], "o", color=colour, markersize=5)
            ends = [min(lengths), max(lengths)]
            words = f"{line.slope:.2f} tokens a token" if len(found) > 1 else None
            axes.plot(
                ends,
                [line.intercept + line.slope * x for x in ends],
                color=colour,
                linewidth=1,
                label=f"{named(series)}: {words}" if words else None,
            )
        if len(found) == 1:
            error = slope_error(points, line)
            clients = clients_of(found[0].outcomes)
            told = f"slope {line.slope:.3f} ± {error:.3f} tokens a token\nR² {line.r_squared:.6f}"
            say_inside(axes, told + (f"\n{clients} clients" if clients else ""))
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_formatter(PLAIN)
        label(axes, "prompt tokens", "tokens in the pool, at the peak")

    return Panel("KV in use over the prompts' length", draw)


def itl_panel(record: RunRecord) -> Panel | None:
    found = [series for series in lines_of(record) if all(o.point.gaps for o in series.outcomes)]
    if not found:
        return None

    def draw(axes: Axes) -> None:
        for series, colour in zip(found, COLOURS, strict=False):
            line, points = itl_line(series.outcomes), itl_points(series)
            lengths = [x for x, _ in points]
            axes.plot(lengths, [1000 * y for _, y in points], "o", color=colour, markersize=5)
            ends = [min(lengths), max(lengths)]
            axes.plot(
                ends,
                [1000 * (line.intercept + line.slope * x) for x in ends],
                color=colour,
                linewidth=1,
                label=named(series) if len(found) > 1 else None,
            )
        if len(found) == 1:
            error = 100 * slope_error(points, line) / abs(line.slope) if line.slope else 0.0
            say_inside(
                axes,
                f"{1000 * line.intercept:.2f} ms + {1000 * line.slope:.5f} ms a token (± {error:.2g} %)\n"
                f"R² {line.r_squared:.6f}",
            )
        axes.set_xlim(left=0)
        low, high = axes.get_ylim()
        axes.set_ylim(low - 0.1 * (high - low), high + 0.25 * (high - low))
        axes.xaxis.set_major_formatter(PLAIN)
        label(axes, "prompt tokens", "ITL p50, milliseconds")

    return Panel("Time between tokens over the prompts' length", draw)


def bandwidth_panel(record: RunRecord) -> Panel | None:
    """The bandwidth that the slope implies beside those that are known of the machine."""
    found, machine = lines_of(record), record.machine
    if not found or machine.kv_bytes_per_token is None:
        return None
    clients = clients_of(found[0].outcomes)
    line = itl_line(found[0].outcomes)
    if clients is None or line.slope <= 0:
        return None
    rows = [("implied by the\nslope of ITL", implied_bandwidth(line, clients, machine.kv_bytes_per_token), BLUE)]
    if machine.copy_bandwidth:
        rows.append(("copying memory,\nread and written", machine.copy_bandwidth, TEAL))
    if machine.peak_bandwidth:
        rows.append(("peak", machine.peak_bandwidth, GREY))

    def draw(axes: Axes) -> None:
        values = [value / 1e9 for _, value, _ in rows]
        bars = axes.barh([name for name, _, _ in rows], values, color=[colour for _, _, colour in rows], height=0.55)
        axes.bar_label(bars, [f"{value:,.4g}" for value in values], padding=4, fontsize=8)
        axes.set_xlim(0, 1.15 * max(values))
        axes.invert_yaxis()
        label(axes, "GB/s", "")

    return Panel("Bandwidth at which KV is read", draw)
