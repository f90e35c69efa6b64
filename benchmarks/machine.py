"""On what the results were measured: processor, cores, memory and versions.

python benchmarks/machine.py [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

PACKAGES = ("torch", "triton", "transformers", "peft", "numpy")
GPU_FIELDS = "name,driver_version,memory.total,clocks.sm,clocks.max.sm,power.limit"


def machine() -> dict[str, object]:
    processor = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "processor": processor[0].partition(":")[2].strip() if processor else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
    }


def gpu_machine() -> dict[str, object]:
    """The same with the GPU and its clocks, as far as its driver's tool is there to tell them."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return machine()
    query = [tool, f"--query-gpu={GPU_FIELDS}", "--format=csv,noheader"]
    lines = subprocess.run(query, capture_output=True, text=True, check=False).stdout.splitlines()
    told = zip(GPU_FIELDS.split(","), lines[0].split(", ") if lines else (), strict=False)
    return machine() | {f"gpu {name}": value for name, value in told}


def _version(name: str) -> str:
    try:
        return version(name)
    except ModuleNotFoundError:
        return "not installed"


def main() -> None:
    parser = argparse.ArgumentParser(description="The machine and the versions that results belong to.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write them here")
    text = json.dumps(machine(), indent=2)
    print(text)  # noqa: T201
    if file := parser.parse_args().json:
        file.write_text(text + "\n")


if __name__ == "__main__":
    main()
