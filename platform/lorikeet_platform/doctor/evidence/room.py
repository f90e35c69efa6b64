"""How large a pool may become: a setting that the engine would refuse at its next start helps nobody."""

from __future__ import annotations

import math
from typing import Final

from lorikeet_platform.doctor.evidence import words
from lorikeet_platform.doctor.examined import Seen
from lorikeet_platform.engine_watch.report import setting_name

WORTH_IT: Final = 1.1  # of what it is


def larger_pool(seen: Seen, knob: str, wanted_bytes: float) -> str | None:
    """The setting for a pool of so many bytes, or as many as there is memory for; None where it can hardly grow."""
    now = seen.knob(knob)
    value = int(min(words.up_to_mib(wanted_bytes), _most(seen, knob))) // words.MIB * words.MIB
    return f"{setting_name(knob)}={value}" if value >= WORTH_IT * now else None


def _most(seen: Seen, knob: str) -> float:
    """A GPU's KV pool takes what its other pools leave, and what lies in the host's memory is not in its table."""
    if seen.design.knobs["device"] == "cuda" and knob != "kv_cache_bytes":
        return math.inf
    return seen.knob(knob) + max(0, dict(seen.design.memory).get("left", 0))
