"""Writes the report of one run or of several into a folder."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from lorikeet_engine.experiments.record import RunRecord
from lorikeet_platform.tools.bench.remarks import remarks_of
from lorikeet_platform.tools.bench.report.documents import Section, markdown, page
from lorikeet_platform.tools.bench.report.pages import pages_of, shared_pages
from lorikeet_platform.tools.bench.report.panels.joined import names_of
from lorikeet_platform.tools.bench.report.tables import shared_tables, tables_of


def draw(records: RunRecord | Sequence[RunRecord], folder: Path) -> list[Path]:
    """PNG pages, `report.html` with everything in it, and `report.md`; what was written, in that order.

    Files of the same names are written over; others in the folder are left alone.
    """
    runs = [records] if isinstance(records, RunRecord) else list(records)
    folder.mkdir(parents=True, exist_ok=True)
    names = names_of(runs)
    sections = [_section(run, name, folder, alone=len(runs) == 1) for run, name in zip(runs, names, strict=True)]
    shared = Section(
        "All runs" if len(runs) > 1 else "Repeated setups",
        [],
        shared_tables(runs),
        [shown.write(folder) for shown in shared_pages(runs)],
    )
    if shared.tables or shared.pictures:
        sections.insert(0 if len(runs) > 1 else len(sections), shared)
    title = names[0] if len(runs) == 1 else f"{len(runs)} runs"
    documents = [(folder / "report.html", page(title, sections)), (folder / "report.md", markdown(title, sections))]
    for path, text in documents:
        path.write_text(text, encoding="utf-8")
    pictures = [picture for section in sections for picture in section.pictures]
    return [*pictures, *(path for path, _ in documents)]


def _section(run: RunRecord, name: str, folder: Path, *, alone: bool) -> Section:
    prefix = "" if alone else re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") + "-"
    pictures = [shown.write(folder) for shown in pages_of(run, prefix)]
    told = remarks_of(run)
    return Section(f"{name}: {run.target}" if run.target not in name else name, told, tables_of(run), pictures)
