"""Inside the jail: take the request, shut the door, work, answer.

    standard input     the request, one JSON object
    standard output    {"confined": true} before the first byte of a stranger's file is read, then the answer;
                       {"unavailable": reason} alone when this machine cannot confine
    other descriptors  the files, open for reading, and a pipe for what the work writes

Nothing here is trusted by the parent, which checks every line.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PosixPath
from typing import Any, BinaryIO, Literal

from lorikeet_adapters.errors import AdapterRejected
from lorikeet_adapters.sandbox.confinement.limits import JailLimits, confine
from lorikeet_adapters.sandbox.confinement.seccomp import NoFilter

ANSWER_FD = 1


class InheritedFile(PosixPath):
    """A file that the parent opened; its name is the descriptor. Two readers share one position."""

    def open(self, mode: Literal["rb"] = "rb", *_: Any) -> BinaryIO:  # type: ignore[override]
        descriptor = int(self.name)
        os.lseek(descriptor, 0, os.SEEK_SET)
        return open(descriptor, mode, closefd=False)


@dataclass(frozen=True, slots=True)
class Task:
    """What there is to do: the caller's own arguments, files by the caller's names, and where to write."""

    arguments: Mapping[str, Any]
    files: Mapping[str, InheritedFile]
    out: BinaryIO


def run_child(work: Callable[[Task], Mapping[str, object]]) -> None:
    """Do `work` confined, answer with what it returns, and end this process."""
    request = json.load(sys.stdin.buffer)
    out = open(request["out"], "wb")  # noqa: SIM115 - ends with the process
    task = Task(request["arguments"], {name: InheritedFile(str(fd)) for name, fd in request["files"].items()}, out)
    try:
        confine(JailLimits(**request["limits"]))
    except NoFilter as error:
        _say({"unavailable": str(error)})
        os._exit(1)
    _say({"confined": True})
    _say(_answer(work, task))
    os._exit(0)  # an orderly end would ask for more than is allowed here


def _answer(work: Callable[[Task], Mapping[str, object]], task: Task) -> Mapping[str, object]:
    try:
        done = work(task)
        task.out.close()
    except AdapterRejected as rejected:
        return {"rejected": {"code": rejected.code, "message": rejected.message, "param": rejected.param}}
    except Exception as error:
        return {"broken": f"{type(error).__name__} at {_place(error)}"}
    return {"done": done}


def _place(error: BaseException) -> str:
    """The innermost frame; an error's text may hold what a stranger wrote."""
    frame, line = None, 0
    trace = error.__traceback__
    while trace is not None:
        frame, line, trace = trace.tb_frame, trace.tb_lineno, trace.tb_next
    return "?" if frame is None else f"{frame.f_globals.get('__name__', '?')}:{line}"


def _say(answer: Mapping[str, object]) -> None:
    data = json.dumps(answer, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    while data:
        data = data[os.write(ANSWER_FD, data) :]
