"""The W3C header in which callers name their trace."""

from __future__ import annotations

import re
from typing import Final

from lorikeet_platform.telemetry.tracing.spans import Caller

_HEADER: Final = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
SAMPLED: Final = 1


def parse_traceparent(text: str) -> Caller | None:
    """None for anything that is not the header's form; versions after the first may say more than we read."""
    match = _HEADER.fullmatch(text)
    if match is None or (match[4] is not None and text.startswith("00-")):
        return None
    trace_id, span_id = int(match[1], 16), int(match[2], 16)
    return Caller(trace_id, span_id, bool(int(match[3], 16) & SAMPLED)) if trace_id and span_id else None
