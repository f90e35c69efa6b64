"""What the parent of a child process makes of its line of JSON, and of the status with which it ended."""

from __future__ import annotations

import signal
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
