"""What a parent does with a child process: read its line of JSON, end it, and say how it ended."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import Any

from lorikeet_adapters import strict_json


def parse_answer(line: bytes, *, max_depth: int) -> dict[str, Any]:
    """The object that the line holds; empty when it holds none: a child is not trusted to write one."""
    try:
        value = strict_json.loads(line, max_depth=max_depth)
    except strict_json.StrictJsonError:
        return {}
    return value if isinstance(value, dict) else {}


def manner_of(status: int) -> str:
    """How a process with this status ended, in words."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


def end_child(child: subprocess.Popen[bytes]) -> None:
    """Whatever state it is in; it leads a process group of its own, which ends with it."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()
