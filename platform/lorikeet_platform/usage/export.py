"""Rows as JSON, CSV or lines of JSON, for answers that may be too large to hold: written to a file, sent from it.

The file frees the database before the first byte is sent, however slowly the caller reads; what fails, fails while
there is still a status to say so.
"""

from __future__ import annotations

import csv
import io
import json
import tempfile
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, Literal

from fastapi.responses import StreamingResponse

from lorikeet_platform.errors import PlatformError

Format = Literal["json", "csv", "jsonl"]
MEDIA_TYPE: Final[dict[Format, str]] = {
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
    "jsonl": "application/x-ndjson",
}
MAX_ROWS: Final = 1_000_000
IN_MEMORY: Final = 1024 * 1024  # bytes of an answer; a larger one goes to disk
PIECE: Final = 64 * 1024
# A spreadsheet takes a cell that begins so for a formula (CWE-1236).
_FORMULA: Final = ("=", "+", "-", "@")
_SKIPPED: Final = ("C", "Z")  # before it, spreadsheets leave out spaces, line ends and what is not seen

Rows = Iterable[Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Sheet:
    """What is exported.

    Attributes:
        head: what a JSON answer says beside its rows.
        folded: columns that JSON has in one object, under a name of their own.
        summed: columns that a JSON answer has the sums of, behind its rows.
    """

    name: str
    columns: Sequence[str]
    rows: Rows
    head: Mapping[str, Any]
    folded: Mapping[str, Sequence[str]] = field(default_factory=dict)
    summed: Sequence[str] = ()


def exported(sheet: Sheet, form: Format, folder: Path) -> StreamingResponse:
    """Raises PlatformError: invalid_value for more than a million rows."""
    folder.mkdir(parents=True, exist_ok=True)
    file = tempfile.SpooledTemporaryFile[bytes](IN_MEMORY, dir=str(folder))
    try:
        for piece in _WRITERS[form](sheet):
            file.write(piece.encode())
        length = file.tell()
        file.seek(0)
    except BaseException:
        file.close()
        raise
    headers = {"content-length": str(length)}
    if form != "json":
        headers["content-disposition"] = f'attachment; filename="{sheet.name}.{form}"'
    return StreamingResponse(_pieces(file), media_type=MEDIA_TYPE[form], headers=headers)


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while piece := file.read(PIECE):
            yield piece


def _json(sheet: Sheet) -> Iterator[str]:
    head = json.dumps({**sheet.head, "data": []}, separators=(",", ":"))
    yield head[: -len("]}")]
    separator = ""
    sums = dict.fromkeys(sheet.summed, 0)
    for row in _named(sheet):
        for name in sums:
            sums[name] += row[name]
        yield separator + _dumped(sheet, row)
        separator = ","
    yield "]"
    if sums:
        yield "," + _dumped(sheet, sums)[1:-1]
    yield "}"


def _jsonl(sheet: Sheet) -> Iterator[str]:
    for row in _named(sheet):
        yield _dumped(sheet, row) + "\n"


def _csv(sheet: Sheet) -> Iterator[str]:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(sheet.columns)
    for row in _bounded(sheet.rows):
        writer.writerow([_cell(value) for value in row])
        yield text.getvalue()
        text.seek(0)
        text.truncate()
    yield text.getvalue()


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and _is_formula(value) else value


def _is_formula(text: str) -> bool:
    """Also in characters that are read as plain ones, such as a full-width equals sign."""
    for character in unicodedata.normalize("NFKC", text):
        if not unicodedata.category(character).startswith(_SKIPPED):
            return character in _FORMULA
    return False


def _named(sheet: Sheet) -> Iterator[dict[str, Any]]:
    for row in _bounded(sheet.rows):
        yield dict(zip(sheet.columns, row, strict=True))


def _dumped(sheet: Sheet, row: Mapping[str, Any]) -> str:
    """A row, or the sums, in JSON: columns that are folded stand last."""
    inner = {name: {column: row[column] for column in columns} for name, columns in sheet.folded.items()}
    hidden = {column for columns in sheet.folded.values() for column in columns}
    outer = {name: value for name, value in row.items() if name not in hidden}
    return json.dumps(outer | inner, separators=(",", ":"))


def _bounded(rows: Rows) -> Iterator[Sequence[Any]]:
    for n_before, row in enumerate(rows):
        if n_before == MAX_ROWS:
            raise PlatformError(
                "invalid_value",
                f"The answer has more than {MAX_ROWS} rows; ask for a shorter time, larger buckets or fewer groups.",
                "start",
            )
        yield row


_WRITERS: Final[dict[Format, Callable[[Sheet], Iterator[str]]]] = {"json": _json, "csv": _csv, "jsonl": _jsonl}
