"""How long a client that was not served waits before it asks again; without it, refusals would be a storm."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final

FIRST_S: Final = 0.1
MOST_S: Final = 5.0


@dataclass(slots=True)
class Paused:
    """How often clients did, and for how long in all."""

    n: int = 0
    seconds: float = 0.0


def pause_after(n_in_a_row: int, retry_after_s: float | None) -> float:
    """As long as the server asks for; or else twice as long each time that nothing was served in a row."""
    return retry_after_s if retry_after_s else min(FIRST_S * 2.0 ** min(n_in_a_row - 1, 16), MOST_S)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The finer of the two headers first; None without either, and for what is no time."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = unit * float(headers[name])
        except (KeyError, ValueError):
            continue
        if math.isfinite(seconds):
            return max(seconds, 0.0)
    try:
        return max(parsedate_to_datetime(headers["retry-after"]).timestamp() - time.time(), 0.0)
    except (KeyError, ValueError):
        return None
