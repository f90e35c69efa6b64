"""A report as Markdown beside its pictures, and as one HTML file that needs nothing beside it."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lorikeet_platform.tools.bench.report.tables import Table

CSS = """
body { font: 15px/1.5 system-ui, sans-serif; color: #3a4150; max-width: 1240px; margin: 2rem auto; padding: 0 1rem }
h1, h2, h3 { color: #22262e; line-height: 1.2 } h2 { margin-top: 2.5rem; border-bottom: 1px solid #d9dde3 }
img { max-width: 100%; display: block; margin: 1rem 0 }
.wide { overflow-x: auto } table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px }
th, td { text-align: right; padding: .25rem .8rem .25rem 0; white-space: nowrap; border-bottom: 1px solid #eceef1 }
th:first-child, td:first-child { text-align: left } th { font-weight: 600 }
"""


@dataclass(frozen=True, slots=True)
class Section:
    """One run, or what several have in common."""

    title: str
    remarks: Sequence[str]
    tables: Sequence[Table]
    pictures: Sequence[Path]


def markdown(title: str, sections: Sequence[Section]) -> str:
    lines = [f"# {_text(title)}", ""]
    for section in sections:
        lines += [f"## {_text(section.title)}", "", *(f"* {_text(remark)}" for remark in section.remarks)]
        lines += [""] if section.remarks else []
        for table in section.tables:
            rows = [table.columns, ["---"] * len(table.columns), *table.rows]
            lines += [f"### {_text(table.title)}", "", *("| " + " | ".join(map(_cell, row)) + " |" for row in rows), ""]
        for picture in section.pictures:
            lines += [f"![{picture.stem}]({picture.name})", ""]
    return "\n".join(lines)


def page(title: str, sections: Sequence[Section]) -> str:
    parts = [f"<h1>{html.escape(title)}</h1>"]
    for section in sections:
        parts.append(f"<h2>{html.escape(section.title)}</h2>")
        if section.remarks:
            parts.append("<ul>" + "".join(f"<li>{html.escape(remark)}</li>" for remark in section.remarks) + "</ul>")
        parts += [_picture(picture) for picture in section.pictures]
        parts += [_table(table) for table in section.tables]
    head = f'<meta charset="utf-8"><title>{html.escape(title)}</title><style>{CSS}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n' + "\n".join(parts) + "\n</body></html>\n"


def _cell(text: str) -> str:
    return _text(text).replace("|", "\\|")


def _text(text: str) -> str:
    """Names are whatever somebody calls them, and Markdown takes HTML as it comes."""
    return html.escape(text, quote=False).replace("\n", " ")


def _picture(path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    return f'<img alt="{html.escape(path.stem)}" src="data:image/png;base64,{data}">'


def _table(table: Table) -> str:
    head = "".join(f"<th>{html.escape(column)}</th>" for column in table.columns)
    rows = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows)
    title = html.escape(table.title)
    return f'<h3>{title}</h3><div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
