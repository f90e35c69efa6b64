"""Notes that survive the engine: a file of JSON lines, appended and brought to the disk by a thread of its own.

One engine a folder, held by a lock that ends with the process. The file is written anew without what is settled when it
is opened, when most of it is settled, and after the disk refused a line; so a line that a crash tore is the last.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import threading
from collections.abc import Iterable, Sequence, Set
from io import FileIO
from pathlib import Path

from lorikeet_engine.outbox.book import Note

FILE, FRESH_FILE, LOCK_FILE = "outbox.jsonl", "outbox.jsonl.new", "lock"
HEADER = b'{"outbox": 1}\n'
COMPACT_BYTES = 1 << 20  # smaller files are left as they are
COMPACT_RATIO = 4  # a file is written anew when it is so many times what is live in it
RETRY_S = 1.0
CLOSE_S = 5.0  # a disk that hangs holds no engine's end up for longer

log = logging.getLogger(__name__)


class Journal:
    """A `book.Notebook` in a folder.

    Raises:
        ValueError: another engine uses the folder, or its file is not of this version.
        OSError: the folder cannot be made, read or written.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._lock = _locked(folder)
        self._live: dict[str, bytes] = {}  # the last line of each request that is not settled
        self._live_bytes = 0
        self._file: FileIO | None = None  # None: it does not hold every live line, and is to be written anew
        self._file_bytes = 0
        try:
            self._restored = _read(folder / FILE)
            for note in self._restored:
                self._take(note)
            self._write_anew()
        except BaseException:
            self._lock.close()
            raise
        self._waiting: dict[str, Note] = {}  # by request: however long the disk takes, its newest note is enough
        self._storing: dict[str, Note] = {}  # taken from there, and not on the disk yet
        self._is_open = True
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="outbox", daemon=True)
        self._thread.start()

    def restored(self) -> Sequence[Note]:
        return self._restored

    def write(self, notes: Sequence[Note]) -> None:
        with self._news:
            for note in notes:
                if note.state == "settled" and not self._knows(note.request_id):
                    self._waiting.pop(note.request_id, None)
                else:
                    self._waiting[note.request_id] = note
            self._news.notify()

    def unwritten(self) -> Set[str]:
        with self._news:
            return self._waiting.keys() | self._storing.keys()

    def close(self) -> None:
        """A writer that hangs keeps file and lock until the process ends: it may still write."""
        with self._news:
            self._is_open = False
            self._news.notify()
        self._thread.join(CLOSE_S)
        with self._news:
            self._tell_unwritten()
        if self._thread.is_alive():
            return
        if self._file:
            self._file.close()
        self._lock.close()

    def _tell_unwritten(self) -> None:
        unwritten = [note for note in (self._storing | self._waiting).values() if note.state != "settled"]
        if unwritten:
            log.error("the outbox in %s ends without what %d requests have used", self._folder, len(unwritten))
        for note in unwritten:
            log.error("not written to the outbox: %s", note)

    def _knows(self, request_id: str) -> bool:
        """Whether a line of it is in the file, or is on its way there."""
        return request_id in self._live or request_id in self._storing

    def _work(self) -> None:
        is_open = True
        while is_open:
            with self._news:
                self._news.wait_for(self._has_news, timeout=None if self._file else RETRY_S)
                taken, self._waiting = self._waiting, {}
                self._storing |= taken
                is_open = self._is_open
            is_stored = self._store(taken.values())
            with self._news:
                # A note that takes back is not owed: the file is written anew, without the request.
                kept = {} if is_stored else self._storing
                self._storing = {name: note for name, note in kept.items() if note.state != "settled"}

    def _has_news(self) -> bool:
        return bool(self._waiting) or not self._is_open

    def _store(self, notes: Iterable[Note]) -> bool:
        """Whether all of these, and what the disk refused before, are on it."""
        was_whole = self._file is not None
        lines = b"".join([self._take(note) for note in notes])
        is_large = self._file_bytes + len(lines) > max(COMPACT_BYTES, COMPACT_RATIO * self._live_bytes)
        try:
            if self._file and not is_large:
                _write(self._file, lines)
                self._file_bytes += len(lines)
            else:
                self._write_anew()
        except OSError as error:
            self._forget_file()
            if was_whole:
                log.error("the outbox in %s cannot be written, and is in memory alone: %s", self._folder, error)
            return False
        if not was_whole:
            log.info("the outbox in %s is whole again", self._folder)
        return True

    def _take(self, note: Note) -> bytes:
        """Remember the request's state; returns its line."""
        line = _line(note)
        self._live_bytes -= len(self._live.pop(note.request_id, b""))
        if note.state != "settled":
            self._live[note.request_id] = line
            self._live_bytes += len(line)
        return line

    def _write_anew(self) -> None:
        self._forget_file()
        fresh = self._folder / FRESH_FILE
        file = FileIO(fresh, "wb")
        try:
            _write(file, HEADER + b"".join(self._live.values()))
            fresh.replace(self._folder / FILE)
            _sync_folder(self._folder)
        except BaseException:
            file.close()
            raise
        self._file, self._file_bytes = file, file.tell()

    def _forget_file(self) -> None:
        file, self._file = self._file, None
        if file:
            file.close()


def _locked(folder: Path) -> FileIO:
    """The folder's lock, ours until it is closed."""
    file = FileIO(folder / LOCK_FILE, "ab+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise ValueError(f"outbox_dir {folder}: another engine uses it") from None
    return file


def _read(path: Path) -> list[Note]:
    """The last note of each request that is not settled, in the order of their first ones.

    Raises:
        ValueError: the file is not of this version.
    """
    try:
        whole, _, torn = path.read_bytes().rpartition(b"\n")
    except FileNotFoundError:
        return []
    if torn:
        log.warning("the outbox %s ends in the middle of a line, which is passed over", path)
    lines = whole.split(b"\n")
    if whole and lines[0] + b"\n" != HEADER:
        raise ValueError(f"outbox_dir: {path} was not written by this version of the engine")
    notes: dict[str, Note] = {}
    for line in lines[1:]:
        note = _note(line)
        if note is None:
            log.error("the outbox %s has a damaged line, whose request is lost: %r", path, line[:200])
        elif note.state == "settled":
            notes.pop(note.request_id, None)
        else:
            notes[note.request_id] = note
    return list(notes.values())


def _line(note: Note) -> bytes:
    fields = {"state": note.state, "id": note.request_id, "tenant": note.tenant}
    counts = [note.prompt_tokens, note.cached_tokens, note.completion_tokens]
    return json.dumps(fields if note.state == "settled" else fields | {"tokens": counts}).encode() + b"\n"


def _note(line: bytes) -> Note | None:
    """What `_line` wrote, None if it is something else."""
    try:
        match json.loads(line):
            case {"state": "settled", "id": str(request_id), "tenant": str(tenant)}:
                return Note(request_id, tenant, "settled")
            case {
                "state": ("running" | "ended") as state,
                "id": str(request_id),
                "tenant": str(tenant),
                "tokens": [int(prompt), int(cached), int(completion)],
            }:
                return Note(request_id, tenant, state, prompt, cached, completion)
    except ValueError:
        pass
    return None


def _write(file: FileIO, data: bytes) -> None:
    """All of it, and on the disk."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]
    os.fsync(file)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
