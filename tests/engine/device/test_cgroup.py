"""A container's limits are read from files of both cgroup versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from lorikeet_engine.execution.machine import cgroup


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this process's cgroup, two levels below the root."""
    folder = tmp_path / "root" / "pod" / "engine"
    folder.mkdir(parents=True)
    (tmp_path / "cgroup").write_text("0::/pod/engine\n")
    monkeypatch.setattr(cgroup, "CGROUP_ROOT", tmp_path / "root")
    monkeypatch.setattr(cgroup, "PROCESS_CGROUPS", tmp_path / "cgroup")
    return folder


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).write_text(text + "\n")


@pytest.mark.parametrize(
    ("files", "left"),
    [
        ({"memory.max": "5000", "memory.current": "2000"}, 3000),
        ({"memory.max": "5000", "memory.current": "7000"}, 0),
        ({"memory.max": "max", "memory.current": "2000"}, None),
        ({"memory.limit_in_bytes": "5000", "memory.usage_in_bytes": "2000"}, 3000),
        ({}, None),
    ],
)
def test_memory_up_to_the_limit_is_left(group: Path, files: dict[str, str], left: int | None) -> None:
    write(group, files)
    assert cgroup.memory_left() == left


def test_page_cache_does_not_count_as_used(group: Path) -> None:
    write(group, {"memory.max": "5000", "memory.current": "4900"})
    write(group, {"memory.stat": "anon 300\ninactive_file 2500\nactive_file 1000\nslab 1"})
    assert cgroup.memory_left() == 3600


def test_a_parents_tighter_limit_counts(group: Path) -> None:
    write(group, {"memory.max": "5000", "memory.current": "0", "cpu.max": "max 100000"})
    write(group.parent, {"memory.max": "2000", "memory.current": "500", "cpu.max": "150000 100000"})
    assert cgroup.memory_left() == 1500
    assert cgroup.cpu_quota() == 1.5


def test_a_quota_of_version_1_is_found(group: Path, tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("4:cpu,cpuacct:/engine\n")
    folder = tmp_path / "root" / "cpu,cpuacct" / "engine"
    folder.mkdir(parents=True)
    write(folder, {"cpu.cfs_quota_us": "200000", "cpu.cfs_period_us": "100000"})
    assert cgroup.cpu_quota() == 2.0


def test_without_limits_nothing_is_limited(group: Path) -> None:
    write(group, {"cpu.max": "max 100000"})
    assert (cgroup.memory_left(), cgroup.cpu_quota()) == (None, None)
