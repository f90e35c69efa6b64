"""The check for GPU machines, run where there is no GPU and without what such machines do not have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CHECK = Path(__file__).parents[4] / "benchmarks" / "gpu_check.py"
ABSENT = (
    "pydantic", "msgspec", "sqlalchemy", "prometheus_client", "fastapi", "zmq", "structlog", "celery", "peft", "pytest",
    "hypothesis",
)  # fmt: skip
# The repository is not installed there: the script finds its sources by itself.
AS_ON_A_BARE_MACHINE = f"""
import runpy, sys
for name in {ABSENT}: sys.modules[name] = None
sys.argv = [{str(CHECK)!r}, "--dry-run"]
sys.path[:] = [{str(CHECK.parent)!r}, *(path for path in sys.path if "lib/python" in path)]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)


def test_without_a_gpu_it_says_what_would_run_without_one() -> None:
    result = run(str(CHECK))
    assert (result.returncode, result.stdout) == (2, "")
    assert "--dry-run" in result.stderr


@pytest.mark.slow
def test_a_dry_run_builds_and_steps_everything_to_the_end() -> None:
    result = run("-c", AS_ON_A_BARE_MACHINE)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
    for part in ("correctness", "streams", "kernels", "engine"):
        assert f"{part} took" in result.stdout
    assert "sm_90" in result.stdout
