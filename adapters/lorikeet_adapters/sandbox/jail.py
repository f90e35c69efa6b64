"""Starting a jailed child, reading what it answers and writes, and ending it in time.

The child gets no environment but numbers of threads, no descriptors but the files, a pipe for the answer and one for
its output, an empty directory, and a session of its own. What it sends is bounded here, by this side's clock and
counts.
"""

from __future__ import annotations

import hashlib
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

from lorikeet_adapters.errors import quoted
from lorikeet_adapters.sandbox.children import end_child, manner_of, parse_answer
from lorikeet_adapters.sandbox.confinement.limits import JailLimits
from lorikeet_adapters.sandbox.rejection import rejection_of

# Threads of numpy's libraries would each want their share of the memory, and there is nothing for them to do.
ENVIRONMENT: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
READ_BYTES: Final = 1 << 20
MAX_ANSWER_DEPTH: Final = 12
_CONFINED: Final = {"confined": True}


class JailBroken(Exception):
    """The child ended in another way than with an answer: a crash, a limit, an answer that is none."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class JailUnavailable(Exception):
    """No child could be confined here, so no file was looked at: a matter of this machine, not of the file."""


@dataclass(frozen=True, slots=True)
class Inmate:
    """What to run: arguments of the interpreter, the task's own arguments, and files by name."""

    program: Sequence[str]
    arguments: Mapping[str, object]
    files: Mapping[str, Path]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the work returned, and the SHA-256 of what it wrote."""

    done: object
    sha256: str


def run_jailed(inmate: Inmate, *, out: Path, max_out_bytes: int, limits: JailLimits) -> Outcome:
    """Run one child to its end; what it wrote is in `out`, which exists only if this returns.

    Raises:
        AdapterRejected: the child says so.
        JailBroken: nothing is known of the files.
        JailUnavailable: see there.
    """
    answer = _Answer(limits.answer_bytes)
    try:
        with out.open("wb") as target:
            output = _Output(target, max_out_bytes)
            status = _run(inmate, answer, output, limits, folder=out.parent)
        return _outcome(answer, output, status)
    except BaseException:
        out.unlink(missing_ok=True)
        raise


@dataclass(slots=True)
class _Answer:
    """The first lines the child said."""

    max_bytes: int
    data: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> None:
        self.data += data
        if len(self.data) > self.max_bytes:
            raise JailBroken(f"it answered with more than {self.max_bytes} bytes")


class _Output:
    """What the child writes, hashed on its way to the file."""

    def __init__(self, target: BinaryIO, max_bytes: int) -> None:
        self._target = target
        self._left = max_bytes
        self.digest = hashlib.sha256()

    def feed(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left < 0:
            raise JailBroken("it wrote more than an adapter of this size can have")
        self.digest.update(data)
        self._target.write(data)


def _run(inmate: Inmate, answer: _Answer, output: _Output, limits: JailLimits, *, folder: Path) -> int:
    """The child's exit status, once both pipes are at their ends; its empty directory lies in `folder`."""
    deadline = time.monotonic() + limits.wall_s
    with ExitStack() as stack:
        empty = stack.enter_context(tempfile.TemporaryDirectory(dir=folder))
        files = {
            name: stack.enter_context(open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb"))
            for name, path in inmate.files.items()
        }
        read_end, write_end = os.pipe()
        source = stack.enter_context(open(read_end, "rb", buffering=0))
        with open(write_end, "wb", buffering=0):
            descriptors = {name: file.fileno() for name, file in files.items()}
            child = _spawn(inmate.program, empty, [*descriptors.values(), write_end])
        stack.callback(end_child, child)
        request = {
            "arguments": inmate.arguments,
            "files": descriptors,
            "out": write_end,
            "limits": asdict(limits),
        }
        _send(child, request)
        assert child.stdout is not None
        _pump({child.stdout.fileno(): answer.feed, source.fileno(): output.feed}, deadline, limits.wall_s)
        return _wait(child, deadline, limits.wall_s)


def _spawn(program: Sequence[str], folder: str, descriptors: Sequence[int]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", *program],
        cwd=folder,
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pass_fds=descriptors,
        start_new_session=True,
        bufsize=0,
    )


def _send(child: subprocess.Popen[bytes], request: Mapping[str, Any]) -> None:
    assert child.stdin is not None
    try:
        child.stdin.write(json.dumps(request).encode())
        child.stdin.close()
    except BrokenPipeError:
        return  # it has ended already; its status says how


def _pump(sinks: Mapping[int, Callable[[bytes], None]], deadline: float, wall_s: float) -> None:
    """Give every sink what comes through its pipe, until all have ended."""
    with selectors.DefaultSelector() as selector:
        for descriptor, sink in sinks.items():
            selector.register(descriptor, selectors.EVENT_READ, sink)
        while selector.get_map():
            left = deadline - time.monotonic()
            ready = selector.select(left) if left > 0 else []
            if not ready:
                raise JailBroken(f"it ran for more than {wall_s:g} s")
            for key, _ in ready:
                data = os.read(key.fd, READ_BYTES)
                if data:
                    key.data(data)
                else:
                    selector.unregister(key.fd)


def _wait(child: subprocess.Popen[bytes], deadline: float, wall_s: float) -> int:
    try:
        return child.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise JailBroken(f"it ran for more than {wall_s:g} s") from None


def _outcome(answer: _Answer, output: _Output, status: int) -> Outcome:
    first, *rest = bytes(answer.data).split(b"\n")
    head = parse_answer(first, max_depth=MAX_ANSWER_DEPTH)
    if head != _CONFINED:
        reason = head.get("unavailable", f"the child {manner_of(status)} before it was confined")
        raise JailUnavailable(f"Files of others cannot be looked at safely: {quoted(reason)}")
    if status != 0 or len(rest) != 2 or rest[1]:
        raise JailBroken(f"it {manner_of(status)}, not with one answer")
    said = parse_answer(rest[0], max_depth=MAX_ANSWER_DEPTH)
    if "done" in said:
        return Outcome(said["done"], output.digest.hexdigest())
    rejected = rejection_of(said.get("rejected"))
    if rejected is not None:
        raise rejected
    raise JailBroken(f"its work ended with {quoted(said.get('broken', 'an answer that is none'))}")
