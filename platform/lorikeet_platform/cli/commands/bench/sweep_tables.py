"""What a sweep shows in a terminal: a row for each point, the lines through them, and static batches beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from lorikeet_engine.experiments.lines import LENGTH, Series, implied_bandwidth, itl_line, kv_line, series_of
from lorikeet_engine.experiments.measures import Line, Outcome, Peaks, peaks_of
from lorikeet_engine.experiments.record import RunRecord, SetupValue
from lorikeet_engine.simulation.report.samples import mean
from lorikeet_engine.simulation.static_batching import StaticRun
from lorikeet_platform.cli.console import print_table
from lorikeet_platform.tools.bench.summary import served_part, values_of

POINTS_OF_A_LINE = 3
FIGURES = 10  # columns of a point that was served


def print_sweep(record: RunRecord) -> None:
    peaks, found = peaks_of(record.machine), series_of(record)
    names = list(dict.fromkeys(name for series in found for name in series.named))
    is_clean = all(
        len(outcome.served) == len(outcome.point.requests) for series in found for outcome in series.outcomes
    )
    columns = (
        *names, record.axis or "point", *(() if is_clean else ("served", "not served")), "ttft p50", "ttft p99",
        "queue", "itl p50", "itl p90", "output/s", "tokens/s", "kv peak", "mfu", "mbu",
    )  # fmt: skip
    rows = [
        (
            *(_value(series.named.get(name)) for name in names),
            _value(outcome.setup.get(record.axis)),
            *(() if is_clean else _fates(outcome)),
            *(_cells(outcome, peaks) if outcome.served else FIGURES * ("",)),
        )
        for series in found
        for outcome in series.outcomes
    ]
    print_table([column.upper() for column in columns], rows, empty="")
    lines = [line for series in series_of(served_part(record)) for line in _lines(series, record)]
    if not lines:
        return
    if copied := record.machine.copy_bandwidth:
        lines.append(("copying memory", "", f"{copied / 1e9:.1f} GB/s, read and written", ""))
    print_table(("OVER PROMPT LENGTH", "LINE", "", ""), lines, empty="")


def _fates(outcome: Outcome) -> tuple[str, str]:
    """How many requests were served, and what became of the others."""
    fates = Counter(request.outcome for request in outcome.point.requests if request.outcome != "ok")
    return f"{len(outcome.served)}", ", ".join(f"{n} {fate}" for fate, n in fates.most_common())


def _cells(outcome: Outcome, peaks: Peaks | None) -> tuple[str, ...]:
    whole = outcome.window.whole if outcome.point.readings else None
    tells_queue = any(request.queue_s is not None for request in outcome.served)
    has_first = bool(values_of("ttft", outcome.served))
    return (
        f"{1000 * outcome.ttft_at(0.5):.1f} ms" if has_first else "",
        f"{outcome.ttft_at(0.99):.2f} s" if has_first else "",
        f"{1000 * outcome.mean_queue:.0f} ms" if tells_queue else "",
        f"{1000 * outcome.gap_at(0.5):.2f} ms",
        f"{1000 * outcome.gap_at(0.9):.1f} ms",
        f"{outcome.output_s:.0f}",
        f"{outcome.total_s:.0f}",
        "" if outcome.kv_peak is None else f"{100 * outcome.kv_peak:.1f} %",
        f"{100 * whole.mfu(peaks):.1f} %" if peaks and whole else "",
        f"{100 * whole.mbu(peaks):.1f} %" if peaks and whole else "",
    )


def _lines(series: Series, record: RunRecord) -> list[tuple[str, ...]]:
    """Of a sweep over lengths: how many requests the slope of KV use counts, and how fast KV was read."""
    outcomes = series.outcomes
    if record.axis != LENGTH or len(outcomes) < POINTS_OF_A_LINE:
        return []
    label = ", ".join(f"{name} {_value(value)}" for name, value in series.named.items())
    clients = int(outcomes[0].setup["concurrency"])
    itl = itl_line(outcomes)
    if record.machine.kv_bytes_per_token is None or not all(o.point.pool_tokens for o in outcomes):
        return [_itl_cells(label, itl, "")]  # a server that was not asked for its pool
    kv = kv_line(outcomes)
    read_s = implied_bandwidth(itl, clients, record.machine.kv_bytes_per_token)
    implied = f"as if KV were read at {read_s / 1e9:.1f} GB/s" if itl.slope > 0 else "does not rise: says nothing of KV"
    return [
        (f"KV in use at the peak  {label}".rstrip(), f"{kv.intercept:.0f} + {kv.slope:.3f} tokens a token",
         f"{clients} clients", f"R² {kv.r_squared:.6f}"),
        _itl_cells(label, itl, implied),
    ]  # fmt: skip


def _itl_cells(label: str, itl: Line, implied: str) -> tuple[str, ...]:
    line = f"{1000 * itl.intercept:.2f} + {1000 * itl.slope:.5f} ms a token"
    return (f"ITL p50  {label}".rstrip(), line, implied, f"R² {itl.r_squared:.6f}")


def print_static(record: RunRecord, runs: Sequence[StaticRun], batch_size: int) -> None:
    """What the same requests take in batches that all leave together, with everybody there from the start."""
    rows = [
        (
            _value(outcome.setup.get(record.axis)),
            f"{run.seconds:.1f} s",
            f"{outcome.point.seconds:.1f} s",
            f"{run.mean_effective_batch:.1f} of {batch_size}",
            f"{100 * run.padding_share:.0f} %",
            f"{run.blocked_s / max(len(run.e2e), 1):.2f} s",
            f"{mean(run.e2e):.2f} s",
        )
        for outcome, run in zip(map(Outcome, record.points), runs, strict=True)
    ]
    columns = (record.axis, "static", "continuous", "rows of use", "padding", "waited after last token", "mean e2e")
    print_table([column.upper() for column in columns], rows, empty="")


def _value(value: SetupValue | None) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
