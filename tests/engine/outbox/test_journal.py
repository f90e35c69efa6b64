"""The outbox on the disk: what survives a kill, a torn line, a full disk; and that one engine has it alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from io import FileIO
from pathlib import Path

import pytest

from lorikeet_engine.outbox import journal as journal_module
from lorikeet_engine.outbox.book import Note
from lorikeet_engine.outbox.journal import HEADER, Journal

RAN, ENDED = Note("ran", "anna", "running", 5, 4, 70), Note("ended", "ben", "ended", 2, 0, 3)


def reopened(folder: Path) -> list[Note]:
    journal = Journal(folder)
    journal.close()
    return list(journal.restored())


def write(folder: Path, *batches: list[Note]) -> Path:
    journal = Journal(folder)
    for batch in batches:
        journal.write(batch)
    journal.close()
    return folder / "outbox.jsonl"


def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_last_note_of_what_is_not_settled_is_there_again(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "outbox"
    write(folder, [RAN._replace(completion_tokens=9), ENDED], [RAN, Note("gone", "anna", "ended", 1, 0, 1)])
    write(folder, [Note("gone", "anna", "settled")])
    assert reopened(folder) == [RAN, ENDED]
    assert reopened(folder) == [RAN, ENDED]


def test_names_of_any_kind_come_back_as_they_were(tmp_path: Path) -> None:
    odd = Note('a"\n\\ü\u2028', "\x00", "ended", 1, 0, 1)
    write(tmp_path, [odd])
    assert reopened(tmp_path) == [odd]


@pytest.mark.parametrize("n_bytes", range(1, 60, 7))
def test_f_22_a_torn_last_line_is_passed_over(tmp_path: Path, n_bytes: int) -> None:
    path = write(tmp_path, [ENDED, RAN])
    path.write_bytes(path.read_bytes()[:-n_bytes])
    assert reopened(tmp_path) == [ENDED]
    assert path.read_bytes().endswith(b"\n")


def test_a_file_that_was_torn_before_its_first_line_was_whole_is_begun_anew(tmp_path: Path) -> None:
    (tmp_path / "outbox.jsonl").write_bytes(HEADER[:5])
    assert reopened(tmp_path) == []


@pytest.mark.parametrize(
    "line",
    [
        b"{}",
        b"\xff\xfe",
        b"[1]",
        b'{"state": "lost", "id": "a", "tenant": "b", "tokens": [1, 2, 3]}',
        b'{"state": "ended", "id": "a", "tenant": "b", "tokens": [1, "2", 3]}',
    ],
)
def test_a_damaged_line_is_told_and_costs_no_other(
    tmp_path: Path, line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path, [ENDED])
    path.write_bytes(path.read_bytes() + line + b"\n")
    write(tmp_path, [RAN])
    assert "damaged line" in caplog.text
    assert reopened(tmp_path) == [ENDED, RAN]


def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "outbox.jsonl"
    path.write_bytes(b'{"outbox": 2}\n')
    with pytest.raises(ValueError, match=r"outbox_dir: .*outbox\.jsonl was not written by this version"):
        Journal(tmp_path)
    assert path.read_bytes() == b'{"outbox": 2}\n'


def test_a_folder_that_another_engine_uses_is_refused(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    with pytest.raises(ValueError, match=r"outbox_dir .*: another engine uses it"):
        Journal(tmp_path)
    journal.close()
    Journal(tmp_path).close()


def test_settled_lines_do_not_pile_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "COMPACT_BYTES", 2000)
    journal = Journal(tmp_path)
    journal.write([ENDED])
    for number in range(500):
        journal.write([Note(f"r{number}", "anna", "ended", 1, 0, 1)])
        journal.write([Note(f"r{number}", "anna", "settled")])
    journal.close()
    assert (tmp_path / "outbox.jsonl").stat().st_size < 2500
    assert reopened(tmp_path) == [ENDED]


def test_f_20_a_full_disk_costs_nothing_when_there_is_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(journal_module, "RETRY_S", 0.01)
    whole, has_room = journal_module._write, False

    def into_a_full_disk(file: FileIO, data: bytes) -> None:
        if not has_room:
            file.write(data[: len(data) // 2])
            raise OSError(28, "No space left on device")
        whole(file, data)

    journal = Journal(tmp_path)
    monkeypatch.setattr(journal_module, "_write", into_a_full_disk)
    journal.write([RAN])
    until(lambda: "No space left on device" in caplog.text)
    journal.write([ENDED])
    assert journal.unwritten() == {"ran", "ended"}
    has_room = True
    until(lambda: (tmp_path / "outbox.jsonl").read_bytes().count(b"\n") == 3)
    until(lambda: not journal.unwritten())
    journal.close()
    assert reopened(tmp_path) == [RAN, ENDED]


def test_a_disk_that_hangs_is_owed_no_more_than_one_note_of_each_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, goes_on, hangs = journal_module._write, threading.Event(), threading.Event()

    def hanging(file: FileIO, data: bytes) -> None:
        hangs.set()
        assert goes_on.wait(10)
        whole(file, data)

    journal = Journal(tmp_path)
    monkeypatch.setattr(journal_module, "_write", hanging)
    journal.write([ENDED])
    assert hangs.wait(10)
    for number in range(1000):
        journal.write([RAN._replace(completion_tokens=number), Note(f"r{number}", "anna", "running", 1, 0, 1)])
        journal.write([Note(f"r{number}", "anna", "settled")])
    journal.write([Note(ENDED.request_id, ENDED.tenant, "settled")])
    assert list(journal._waiting) == [RAN.request_id, ENDED.request_id]
    goes_on.set()
    journal.close()
    assert reopened(tmp_path) == [RAN._replace(completion_tokens=999)]


def test_a_disk_that_hangs_for_good_does_not_hold_the_engines_end_up_and_what_it_lacks_is_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(journal_module, "CLOSE_S", 0.2)
    hangs, goes_on = threading.Event(), threading.Event()

    def hanging(_: FileIO, __: bytes) -> None:
        hangs.set()
        goes_on.wait(20)

    journal = Journal(tmp_path)
    monkeypatch.setattr(journal_module, "_write", hanging)
    journal.write([ENDED, Note("gone", "anna", "running", 1, 0, 1)])
    assert hangs.wait(10)
    journal.write([RAN, Note("gone", "anna", "settled")])
    began = time.monotonic()
    journal.close()
    took_s = time.monotonic() - began
    goes_on.set()
    assert took_s < 10
    assert "ends without what 2 requests have used" in caplog.text
    assert str(RAN) in caplog.text
    assert str(ENDED) in caplog.text
    with pytest.raises(ValueError, match="another engine uses it"):  # what hangs may still write
        Journal(tmp_path)


def test_what_a_full_disk_never_took_is_in_the_log_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def into_a_full_disk(_: FileIO, __: bytes) -> None:
        raise OSError(28, "No space left on device")

    journal = Journal(tmp_path)
    journal.write([ENDED])
    until(lambda: not journal.unwritten())
    monkeypatch.setattr(journal_module, "_write", into_a_full_disk)
    journal.write([RAN])
    journal.close()
    assert "ends without what 1 requests have used" in caplog.text
    assert str(RAN) in caplog.text


WRITER = """
import sys, time
from pathlib import Path
from lorikeet_engine.outbox.book import Note
from lorikeet_engine.outbox.journal import Journal
journal = Journal(Path(sys.argv[1]))
for number in range(10**9):
    journal.write([Note(f"r{number % 50}", "anna", "running", 1, 0, number)])
    while len(journal._waiting) > 25:
        print(number, flush=True)
        time.sleep(0.0005)
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_f_1_what_was_written_survives_a_kill_at_any_moment(tmp_path: Path, seed: int) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    writer.stdout.readline()
    time.sleep(0.05 + 0.03 * seed)
    os.kill(writer.pid, signal.SIGKILL)
    writer.communicate()
    restored = reopened(tmp_path)
    assert 1 <= len(restored) <= 50
    newest = max(note.completion_tokens for note in restored)
    assert sorted(note.completion_tokens for note in restored) == list(range(newest - len(restored) + 1, newest + 1))
