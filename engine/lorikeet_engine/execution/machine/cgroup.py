"""What a container leaves to this process: memory and CPU time, from the process's cgroup and its parents.

Any of them may hold the limit. Version 2 first, then version 1; outside a cgroup, and elsewhere than on Linux, there
is none.
"""

from __future__ import annotations

from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
PROCESS_CGROUPS = Path("/proc/self/cgroup")


def memory_left() -> int | None:
    """Bytes until the tightest limit; page cache counts as free, since the kernel gives it up first."""
    return min((left for path in _groups("memory") if (left := _memory_left(path)) is not None), default=None)


def cpu_quota() -> float | None:
    """CPUs' worth of time a second under the tightest quota."""
    return min((quota for path in _groups("cpu") if (quota := _cpu_quota(path)) is not None), default=None)


def _groups(controller: str) -> list[Path]:
    found: list[Path] = []
    for line in PROCESS_CGROUPS.read_text().splitlines() if PROCESS_CGROUPS.exists() else []:
        _, controllers, group = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = CGROUP_ROOT / controllers if controllers else CGROUP_ROOT
        here = root / group.lstrip("/")
        found += [here, *[parent for parent in here.parents if parent.is_relative_to(root)]]
    return found


def _memory_left(path: Path) -> int | None:
    for limit_name, usage_name, cache_prefix in (
        ("memory.max", "memory.current", ""),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
    ):
        limit_file, usage_file = path / limit_name, path / usage_name
        if not (limit_file.exists() and usage_file.exists()):
            continue
        limit = limit_file.read_text().strip()
        if limit == "max":
            return None
        cache = sum(_statistics(path / "memory.stat", f"{cache_prefix}{kind}_file") for kind in ("inactive", "active"))
        return max(0, min(int(limit), int(limit) - int(usage_file.read_text()) + cache))
    return None


def _cpu_quota(path: Path) -> float | None:
    if (path / "cpu.max").exists():
        quota, period = (path / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    files = path / "cpu.cfs_quota_us", path / "cpu.cfs_period_us"
    if all(file.exists() for file in files):
        quota_us, period_us = (int(file.read_text()) for file in files)
        return None if quota_us < 0 else quota_us / period_us
    return None


def _statistics(path: Path, name: str) -> int:
    for line in path.read_text().splitlines() if path.exists() else []:
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0
