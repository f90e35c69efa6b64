"""What a plan allows that says nothing else: the plan `standard`, as the migrations make it."""

from __future__ import annotations

from typing import Final

from lorikeet_platform.limits.effective import Figures
from lorikeet_platform.settings import GIB

STANDARD_PLAN: Final = "standard"
STANDARD: Final[Figures] = {
    "rpm": (6_000, 1_000),
    "tpm": (4_000_000, 1_000_000),
    "concurrent": (256, None),
    "queue_depth": (256, None),
    "monthly_tokens": (1_000_000_000_000, None),
    "max_context": (1_048_576, None),
    "max_output_tokens": (131_072, None),
    "max_n": (8, None),
    "adapters": (100, None),
    "adapter_bytes": (50 * GIB, None),
    "upload_inflight_bytes": (8 * GIB, None),
    "open_uploads": (16, None),
    "keys": (100, None),
}
