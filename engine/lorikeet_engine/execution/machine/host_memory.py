"""What the C library does with memory that a step has let go of.

Activations are allocated and freed by every layer of every step. Left to itself glibc gives large ones back to the
system, which then faults in every page anew: 5 % of a prompt's time.
"""

from __future__ import annotations

import ctypes
import ctypes.util

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # <malloc.h>
LARGEST_FROM_HEAP = 32 << 20  # the most that glibc takes for it
KEPT_BYTES = 1 << 30


def keep_freed_activations() -> None:
    """Let freed memory stay with the process for the next step; does nothing where the C library is not glibc."""
    library = ctypes.CDLL(ctypes.util.find_library("c"))
    if hasattr(library, "gnu_get_libc_version"):
        library.mallopt(M_MMAP_THRESHOLD, LARGEST_FROM_HEAP)
        library.mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
