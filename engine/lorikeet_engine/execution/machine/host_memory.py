"""The memory that there is on the host: what this process may still take of it."""

from __future__ import annotations

import os
from pathlib import Path

from lorikeet_engine.execution.machine.cgroup import memory_left


def available_memory() -> int:
    """Bytes this process may still take: what the system has available, or less where a cgroup says so."""
    system = _meminfo_available()
    left = memory_left()
    return system if left is None else min(system, left)


def _meminfo_available() -> int:
    path = Path("/proc/meminfo")
    if path.exists():
        for line in path.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
