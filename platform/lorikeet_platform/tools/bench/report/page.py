"""A page of panels, and how all panels look; knows nothing of what they show."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from lorikeet_engine.simulation.report import plots

BLUE, TEAL, ORANGE, GREY = plots.BLUE, plots.TEAL, plots.ORANGE, plots.GREY
PURPLE: Final = "#8d5a97"
COLOURS: Final = (BLUE, TEAL, ORANGE, PURPLE, "#5c677d", "#c9a227")
KINDS: Final = {"prefill": ORANGE, "mixed": TEAL, "decode": BLUE, "copy": GREY}
INK: Final = "#3a4150"
COLUMNS: Final = 2
PANEL_WIDTH, PANEL_HEIGHT = 6.0, 3.2
PLAIN: Final = FuncFormatter(lambda value, _: f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}")  # of ticks
MANY_DECADES = 2000.0
NEAR_X, NEAR_Y = 0.06, 0.07  # of a panel: names closer than that stand in each other's way
WIDE_SPAN = 8  # from this factor on between first and last, an axis is logarithmic
STYLE: Final[Any] = {
    "font.size": 9,
    "text.parse_math": False,  # a name with a dollar is a name
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture; `draw` fills its axes."""

    title: str
    draw: Callable[[Axes], None]


@dataclass(frozen=True, slots=True)
class Page:
    """Several pictures in one file called `name`."""

    name: str
    title: str
    panels: Sequence[Panel]

    def write(self, folder: Path) -> Path:
        rows = math.ceil(len(self.panels) / COLUMNS)
        columns = min(COLUMNS, len(self.panels))
        with mpl.rc_context(STYLE):
            layout = ConstrainedLayoutEngine(h_pad=0.12, w_pad=0.12)
            figure = Figure(figsize=(PANEL_WIDTH * columns, PANEL_HEIGHT * rows + 0.4), layout=layout)
            figure.suptitle(self.title, x=0.01, ha="left", fontsize=12, color=INK)
            places = figure.subplots(rows, columns, squeeze=False).flatten()
            for axes, panel in zip(places, self.panels, strict=False):
                axes.set_title(panel.title)
                panel.draw(axes)
            for axes in places[len(self.panels) :]:
                axes.set_visible(False)
            path = folder / f"{self.name}.png"
            figure.savefig(path, dpi=110)
        return path


def label(axes: Axes, x: str, y: str, *, legend: bool = True, columns: int = 1) -> None:
    """Names of both axes, numbers that can be read, and the legend.

    A legend of several columns has room kept for it at the top; one of a single column goes where it covers least.
    """
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    for scale, axis in ((axes.get_xscale(), axes.xaxis), (axes.get_yscale(), axes.yaxis)):
        if scale == "log" and not isinstance(axis.get_major_locator(), FixedLocator):
            low, high = axis.get_view_interval()
            axis.set_major_locator(LogLocator(subs=(1.0,) if high / low > MANY_DECADES else (1.0, 2.0, 5.0)))
            axis.set_major_formatter(PLAIN)
            axis.set_minor_locator(NullLocator())
    if axes.get_yscale() == "linear" and axes.get_ylim()[1] >= 1000:
        axes.yaxis.set_major_formatter(PLAIN)
    if legend and axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8, ncols=columns, loc="best" if columns == 1 else "upper right")


def from_zero(axes: Axes, most: float, *, room: float = 1.0) -> None:
    """The y axis up to `most`, and `room` times that where something stands above it."""
    axes.set_ylim(0, max(most * 1.06 * room, 1e-9))


def places(axes: Axes, values: Sequence[float]) -> None:
    """Ticks of the x axis exactly at `values`, which lie far apart on a logarithmic one."""
    distinct = sorted(set(values))
    if len(distinct) > 1 and distinct[0] > 0 and distinct[-1] / distinct[0] >= WIDE_SPAN:
        axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(distinct))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(PLAIN)


def number(value: float) -> str:
    """Three digits, or as many as stand before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def whole_numbers(axes: Axes) -> None:
    """There are no half requests."""
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))


def name_apart(axes: Axes, names: Sequence[tuple[float, float, str, str]]) -> None:
    """Writes names (x, y, words, colour) at their points, the later ones only where no earlier one stands already."""
    wide = max(x for x, *_ in names) - min(x for x, *_ in names) or 1.0
    high = max(y for _, y, *_ in names) - min(y for _, y, *_ in names) or 1.0
    written: list[tuple[float, float]] = []
    for x, y, words, colour in names:
        if all(abs(x - other_x) > NEAR_X * wide or abs(y - other_y) > NEAR_Y * high for other_x, other_y in written):
            written.append((x, y))
            axes.annotate(words, (x, y), xytext=(4, 5), textcoords="offset points", fontsize=7, color=colour)


def say_inside(axes: Axes, text: str, *, x: float = 0.03, y: float = 0.95, right: bool = False) -> None:
    """A few words in the panel's upper corner."""
    axes.text(
        1 - x if right else x, y, text, transform=axes.transAxes, va="top", ha="right" if right else "left", fontsize=8,
        color=INK, linespacing=1.4,
    )  # fmt: skip


def over_name(axis: str) -> str:
    """The axis of a sweep in words."""
    known = {
        "prompt_tokens": "prompt tokens",
        "concurrency": "clients",
        "requests_per_s": "requests a second",
        "shared_share": "shared part of the prompt",
    }
    return known.get(axis, axis)
