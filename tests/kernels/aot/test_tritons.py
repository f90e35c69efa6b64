"""Which versions of Triton the kernels are compiled with: the installed one, and the oldest that GPU machines have."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.aot import INSTALLED, TRITONS

pytestmark = pytest.mark.slow

# In the environment that the Makefile makes; elsewhere `pip install --no-deps --target` lays it there.
OLDEST = "triton-3.6"


def test_the_oldest_version_lies_beside_the_installed_one_and_is_what_a_child_imports() -> None:
    assert list(TRITONS) == [INSTALLED, OLDEST]
    child = subprocess.run(
        [sys.executable, "-c", "import triton; print(triton.__version__)"],
        env={**os.environ, "PYTHONPATH": str(TRITONS[OLDEST])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert child.stdout.startswith("3.6.")
