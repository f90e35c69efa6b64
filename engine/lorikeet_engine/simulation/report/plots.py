"""One page of plots from a report's plain values; knows nothing of the run itself."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

BLUE, TEAL, ORANGE, GREY = "#3565a8", "#2a9d8f", "#e07a3f", "#b6bcc6"
MAX_TENANTS = 12  # bars by tenant; more would be unreadable


def draw_page(report: dict[str, Any], path: Path) -> None:
    """Write the PNG page of one report."""
    with mpl.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(12, 9), layout="constrained")
        axes = figure.subplots(3, 2)
        figure.suptitle(f"{report['workload']}: {report['model']} on {report['device']}, seed {report['seed']}")
        _requests(axes[0][0], report)
        _kv(axes[0][1], report)
        _throughput(axes[1][0], report)
        _latency(axes[1][1], report)
        _outcomes(axes[2][0], report)
        _phases(axes[2][1], report)
        figure.savefig(path, dpi=100)


def _times(report: dict[str, Any]) -> list[float]:
    return [sample["at"] for sample in report["timeline"]]


def _column(report: dict[str, Any], name: str) -> list[float]:
    return [sample[name] for sample in report["timeline"]]


def _requests(axes: Axes, report: dict[str, Any]) -> None:
    axes.set_title("Requests")
    axes.plot(_times(report), _column(report, "running"), color=BLUE, label="running")
    axes.plot(_times(report), _column(report, "waiting"), color=ORANGE, label="waiting", linewidth=0.8)
    _label(axes, "seconds", "requests")


def _kv(axes: Axes, report: dict[str, Any]) -> None:
    axes.set_title("Memory in use")
    parts = [[100 * share for share in _column(report, name)] for name in ("kv_used", "kv_reserved", "kv_cached")]
    axes.stackplot(_times(report), *parts, labels=["KV used", "KV promised", "KV cached"], colors=[BLUE, TEAL, GREY])
    if report["adapters"]["requests"]:
        arena = [100 * share for share in _column(report, "arena_used")]
        axes.plot(_times(report), arena, color=ORANGE, label="arena", linewidth=0.8)
    axes.set_ylim(0, 100)
    _label(axes, "seconds", "% of the pool")


def _throughput(axes: Axes, report: dict[str, Any]) -> None:
    axes.set_title("Output tokens a second")
    samples = report["timeline"]
    step = max(1, len(samples) // 120)
    kept: Sequence[dict[str, Any]] = samples[::step]
    rates = [
        (after["output_tokens"] - before["output_tokens"]) / (after["at"] - before["at"])
        for before, after in pairwise(kept)
    ]
    axes.plot([sample["at"] for sample in kept[1:]], rates, color=BLUE)
    axes.set_ylim(bottom=0)
    _label(axes, "seconds", "tokens/s", legend=False)


def _latency(axes: Axes, report: dict[str, Any]) -> None:
    axes.set_title("Latency")
    names = ["ttft", "queue", "itl", "tpot", "e2e"]
    for offset, (name, colour) in enumerate((("p50", BLUE), ("p90", TEAL), ("p99", ORANGE))):
        values = [max(report["latency"][kind][name], 1e-4) for kind in names]
        axes.bar([place + (offset - 1) * 0.26 for place in range(len(names))], values, 0.26, color=colour, label=name)
    axes.set_xticks(range(len(names)), [name.upper() if name != "queue" else name for name in names])
    axes.set_yscale("log")
    _label(axes, "", "seconds")


def _outcomes(axes: Axes, report: dict[str, Any]) -> None:
    tenants = sorted(report["tenants"], key=lambda tenant: -tenant["requests"]["submitted"])[:MAX_TENANTS]
    axes.set_title("Requests by tenant" if len(tenants) < MAX_TENANTS else f"Requests of the {MAX_TENANTS} busiest")
    left = [0.0] * len(tenants)
    for outcome, colour in (("met", TEAL), ("missed", ORANGE), ("refused", GREY), ("expired", "#8d5a97")):
        values = [float(tenant["goodput"][outcome]) for tenant in tenants]
        axes.barh([tenant["tenant"] for tenant in tenants], values, left=left, color=colour, label=outcome)
        left = [low + value for low, value in zip(left, values, strict=True)]
    axes.invert_yaxis()
    _label(axes, "requests", "")


def _phases(axes: Axes, report: dict[str, Any]) -> None:
    axes.set_title("Use of the device, by kind of step")
    names = [name for name in ("decode", "mixed", "prefill") if name in report["phases"]]
    for offset, (kind, colour) in enumerate((("mfu", BLUE), ("mbu", TEAL))):
        values = [100 * report["phases"][name][kind] for name in names]
        axes.bar([place + (offset - 0.5) * 0.35 for place in range(len(names))], values, 0.35, color=colour, label=kind)
    axes.set_xticks(range(len(names)), names)
    axes.set_ylim(0, 100)
    _label(axes, "", "% of the peak")


def _label(axes: Axes, x: str, y: str, *, legend: bool = True) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if legend:
        axes.legend(frameon=False, fontsize=8)
