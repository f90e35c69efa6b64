"""Reports of runs: which pictures a record has, what the documents say, and that they need nothing beside them."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from lorikeet_engine.experiments.lines import kv_line, series_of
from lorikeet_engine.experiments.measures import Outcome, fit_line
from lorikeet_engine.experiments.record import (
    Generator,
    Machine,
    PointRecord,
    Reading,
    RequestRecord,
    RunRecord,
    SetupValue,
)
from lorikeet_platform.tools.bench.remarks import remarks_of
from lorikeet_platform.tools.bench.report import draw
from lorikeet_platform.tools.bench.report.page import Page
from lorikeet_platform.tools.bench.report.pages import pages_of, shared_pages
from lorikeet_platform.tools.bench.report.panels.joined import repeated_in
from lorikeet_platform.tools.bench.report.panels.latency import split_of
from lorikeet_platform.tools.bench.report.panels.lengths import slope_error
from lorikeet_platform.tools.bench.report.tables import shared_tables, tables_of
from lorikeet_platform.tools.bench.summary import served_part

POOL = 10_000
KV_BYTES = 1000
BANDWIDTH = 50e6  # at which this machine reads keys and values


def reading(at_s: float, length: int, clients: int, kv_peak: float | None) -> Reading:
    n = round(at_s * 10)
    return Reading(
        at_s=at_s,
        running=clients if at_s > 1 else clients // 2,
        waiting=0 if at_s > 1 else clients - clients // 2,
        kv_used=None if kv_peak is None else min(kv_peak, kv_peak * at_s / 4),
        kv_reserved=None if kv_peak is None else 0.01,
        kv_cached=None if kv_peak is None else 0.0,
        kv_peak=kv_peak,
        prompt_tokens=n * length,
        output_tokens=n * clients,
        preemptions=None,
        steps={"prefill": n, "decode": 9 * n},
        step_seconds={"prefill": 0.04 * n, "decode": 0.05 * n},
        flops={"prefill": 2e9 * n, "decode": 1e8 * n},
        read_bytes={"prefill": 1e6 * n, "decode": 2e7 * n},
    )


def point(length: int = 100, clients: int = 4, *, is_ours: bool = True, **setup: SetupValue) -> PointRecord:
    """KV peaks at clients · (length + 20) tokens, and a gap is 20 ms + what reading that takes."""
    gap_s = 0.02 + clients * length * KV_BYTES / BANDWIDTH
    requests = [
        RequestRecord(
            tenant="bench",
            adapter="",
            n_prompt=length,
            n_cached=0,
            n_output=20,
            sent_s=0.1 * i,
            queue_s=0.01 * (i % clients) if is_ours else None,
            first_s=0.1 * i + 0.05 + length / 1000,
            last_s=0.1 * i + 0.05 + length / 1000 + 19 * gap_s,
            outcome="ok",
        )
        for i in range(20)
    ]
    kv_peak = clients * (length + 20) / POOL if is_ours else None
    told: dict[str, SetupValue] = {"prompt_tokens": length, "output_tokens": 20, "concurrency": clients, "seed": 1}
    return PointRecord(
        setup=told | setup,
        seconds=10.0,
        requests=requests,
        gaps=[(gap_s, 360), (0.2, 20)],
        readings=[reading(at / 2, length, clients, kv_peak) for at in range(21)] if is_ours else [],
    )


def run(*points: PointRecord, axis: str = "", name: str = "run", **machine: float | int | None) -> RunRecord:
    known = {
        "peak_flops": 1e12,
        "peak_bandwidth": 1e9,
        "copy_bandwidth": 0.8e9,
        "kv_bytes_per_token": KV_BYTES,
        "pool_tokens": POOL,
    }
    return RunRecord(
        name=name,
        axis=axis,
        source="engine",
        target="tiny on cpu",
        started_at="2026-01-01T00:00:00+00:00",
        machine=Machine(model="tiny", device="cpu", **known | machine),  # type: ignore[arg-type]
        points=list(points),
    )


LENGTHS = run(*[point(length) for length in (100, 200, 400, 800)], axis="prompt_tokens", name="lengths")
CLIENTS = run(*[point(100, clients) for clients in (1, 2, 4, 8)], axis="concurrency", name="clients")


def panels(record: RunRecord) -> dict[str, list[str]]:
    return {page.name: [panel.title for panel in page.panels] for page in pages_of(record, "")}


def cells(record: RunRecord, title: str) -> list[list[str]]:
    (table,) = [table for table in tables_of(record) if table.title == title]
    return [list(row) for row in table.rows]


def test_a_sweep_over_lengths_has_the_articles_figures(tmp_path: Path) -> None:
    written = draw(LENGTHS, tmp_path)
    assert [path.name for path in written] == [
        *("points.png", "device.png", "time-100.png", "time-800.png", "report.html", "report.md"),
    ]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written[:-2])
    assert panels(LENGTHS)["points"] == [
        "KV in use over the prompts' length",
        "Time between tokens over the prompts' length",
        "Bandwidth at which KV is read",
        "Where the time to the first token goes",
        "Throughput: what is read in, and what comes out",
        "Use of the device",
        "Time to the first token",
        "Time between tokens",
    ]
    kv, itl = cells(LENGTHS, "Lines over the prompts' length")
    assert (kv[3], kv[4], kv[5]) == ("4.0000 ± 0.0000", "1.000000", "4 clients: +0.00 %")
    assert itl[2] == "20.000 ms"
    assert itl[5] == "KV read at 0.05 GB/s; copying: 0.8 GB/s; peak: 1 GB/s"


def test_the_page_needs_nothing_beside_it_and_markdown_shows_the_pictures(tmp_path: Path) -> None:
    draw(run(point(tenant=1), name="<one> & only"), tmp_path)
    page, text = (tmp_path / "report.html").read_text(), (tmp_path / "report.md").read_text()
    assert re.findall(r'(?:src|href)="(?!data:)', page) == []
    assert "&lt;one&gt; &amp; only" in page
    assert "<one>" not in page
    for name in re.findall(r"!\[.*?\]\((.*?)\)", text):
        assert (tmp_path / name).is_file()
    assert page.count("data:image/png;base64,") == len(list(tmp_path.glob("*.png")))


def test_names_are_drawn_and_written_as_they_are(tmp_path: Path) -> None:
    told = point()
    names = ["a$x_{$", "<img src=x>", "b|c", "$5 plan", "$9 plan"]
    requests = [replace(request, tenant=names[i % len(names)]) for i, request in enumerate(told.requests)]
    draw(run(replace(told, requests=requests), name=r"$\frac{ <script>"), tmp_path)
    page, text = (tmp_path / "report.html").read_text(), (tmp_path / "report.md").read_text()
    for document in (page, text):
        assert "<img src=x>" not in document
        assert "<script>" not in document
    assert r"| b\|c |" in text
    assert "| &lt;img src=x&gt; |" in text


def test_points_that_served_nothing_have_no_figures_and_are_in_no_picture(tmp_path: Path) -> None:
    *others, last = CLIENTS.points
    refused = [replace(r, outcome="refused", first_s=None, last_s=None, n_output=0) for r in last.requests]
    lost = replace(last, requests=refused, gaps=[])
    record = replace(CLIENTS, points=[*others, lost])
    row = cells(record, "Points")[-1]
    assert row[:2] == ["8", "0 of 20"]
    assert set(row[2:]) == {""}
    assert remarks_of(record) == ["concurrency 8: Nothing was served, so it has no figures and is in no picture."]
    assert served_part(record).points == others
    draw(record, tmp_path)
    shown = {panel.title: panel for page in pages_of(record, "") for panel in page.panels}
    axes = Figure().subplots()
    shown["Throughput: what is read in, and what comes out"].draw(axes)
    assert [len(line.get_xdata()) for line in axes.lines] == [3, 3]  # type: ignore[arg-type]
    assert pages_of(replace(CLIENTS, points=[lost]), "") == []


def test_what_is_written_at_two_lines_that_are_close_lies_on_either_side_of_them() -> None:
    near = run(*CLIENTS.points, axis=CLIENTS.axis, peak_flops=5e10, peak_bandwidth=4.9e8)  # 42.0 % and 42.9 %
    (panel,) = [panel for page in pages_of(near, "") for panel in page.panels if panel.title == "Use of the device"]
    figure = Figure(figsize=(6, 3.2))
    axes = figure.subplots()
    panel.draw(axes)
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) == 8
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


def test_a_foreign_servers_run_shows_what_it_told_and_nothing_else(tmp_path: Path) -> None:
    told = point(is_ours=False)
    lost = replace(told.requests[0], outcome="refused", code="overloaded", first_s=None, last_s=None, n_output=0)
    generator = Generator(
        late_p99_s=0.5, late_max_s=1.0, lag_p99_s=0.0, lag_max_s=0.0, cpu_share=0.1,
        n_pieces=399, n_tokens=400, n_differing=1, n_without_usage=0,
    )  # fmt: skip
    goals = told.setup | {"goodput": "ttft:155 tpot:1000"}
    told = replace(told, requests=[*told.requests, lost], generator=generator, setup=goals)
    record = run(told, peak_flops=None, peak_bandwidth=None, pool_tokens=None)
    assert panels(record) == {
        "time": [
            "Latency: TTFT, TPOT, ITL, E2EL",
            "Requests under way",
            "First tokens, request by request",
            "Gaps between tokens",
            "Requests by tenant",
        ]
    }
    draw(record, tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "partly its own" in text
    assert "399 pieces, 400 tokens" in text
    requests = dict(cells(record, "Requests"))
    assert (requests["ok"], requests["refused"], requests["… overloaded"]) == ("20", "1", "1")
    assert requests["goodput (ttft ≤ 155 ms, tpot ≤ 1000 ms)"] == "2.00/s, 95.2 %"


def test_runs_along_different_axes_are_joined_by_kv_occupancy_and_repetitions_are_found(tmp_path: Path) -> None:
    again = replace(CLIENTS.points[2], setup=CLIENTS.points[2].setup | {"seed": 2}, seconds=11.0)
    records = [LENGTHS, replace(CLIENTS, points=[*CLIENTS.points, again])]
    pages = shared_pages(records)
    assert [page.name for page in pages] == ["occupancy", "repeatability"]
    assert all(page.write(tmp_path).is_file() for page in pages)
    (same,) = repeated_in(records)
    assert len(same.outcomes) == 3
    (table,) = shared_tables(records)
    assert [row[1] for row in table.rows] == ["TTFT p50", "TTFT p99", "ITL p50", "Output"]
    assert table.rows[0][4] == "0.00 %"
    spread = 100 * (40 - 400 / 11) / ((40 + 40 + 400 / 11) / 3)
    assert float(table.rows[3][4].removesuffix(" %")) == pytest.approx(spread, abs=0.01)


def test_several_runs_have_files_of_their_own_and_a_section_in_common(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_nothing(page: Page, folder: Path) -> Path:
        (folder / f"{page.name}.png").write_bytes(b"")
        return folder / f"{page.name}.png"

    monkeypatch.setattr(Page, "write", write_nothing)
    written = [path.name for path in draw([LENGTHS, CLIENTS], tmp_path)]
    assert written[:2] == ["occupancy.png", "repeatability.png"]
    assert {"lengths-points.png", "lengths-time-800.png", "clients-exchange.png", "clients-device.png"} <= set(written)
    assert len(set(written)) == len(written)
    headings = re.findall("^## (.*)$", (tmp_path / "report.md").read_text(), re.MULTILINE)
    assert headings == ["All runs", "lengths: tiny on cpu", "clients: tiny on cpu"]


def test_runs_of_the_same_axis_or_of_one_point_are_compared() -> None:
    other = replace(CLIENTS, name="other", target="tiny on gpu")
    assert [page.name for page in shared_pages([CLIENTS, other])] == ["comparison"]
    single = [run(point(), name=name) for name in ("a", "b")]
    assert [page.name for page in shared_pages(single)] == ["comparison", "repeatability"]


def test_the_time_to_the_first_token_is_split_by_requests_or_else_by_the_engines_counters() -> None:
    ours = point()
    assert split_of(Outcome(ours)) == pytest.approx((0.015, 0.135))
    mute = replace(ours, requests=[replace(request, queue_s=None) for request in ours.requests])
    assert split_of(Outcome(mute)) is None
    first, *between, last = ours.readings
    counted = [
        replace(first, first_tokens=3, queue_seconds=1.0, prefill_seconds=2.0),
        *between,
        replace(last, first_tokens=23, queue_seconds=2.0, prefill_seconds=4.0),
    ]
    told = replace(mute, readings=counted)
    assert split_of(Outcome(told)) == pytest.approx((0.05, 0.1))
    assert "Where the time to the first token goes: 150 ms" in panels(run(told))["time"]


def test_a_budget_is_traded_and_a_length_is_not() -> None:
    budgets = run(*[point(max_num_batched_tokens=n) for n in (256, 512)], axis="max_num_batched_tokens")
    assert panels(budgets)["exchange"] == [
        "TTFT against ITL, by max_num_batched_tokens",
        "Output against ITL, by max_num_batched_tokens",
    ]
    assert "exchange" not in panels(LENGTHS)


def test_a_slopes_error_is_what_its_points_leave_over() -> None:
    points = [(0.0, 0.0), (1.0, 1.1), (2.0, 1.9), (3.0, 3.0)]
    line = fit_line(points)
    off = sum((y - line.intercept - line.slope * x) ** 2 for x, y in points)
    assert slope_error(points, line) == pytest.approx((off / 2 / 5.0) ** 0.5)
    assert slope_error(points[:2], fit_line(points[:2])) == 0.0
    assert kv_line(series_of(LENGTHS)[0].outcomes, POOL).slope == pytest.approx(4.0)
