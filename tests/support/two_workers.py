"""How the tests are shared out when several processes run them (`pytest -n 2`), and what these must not do at once."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from xdist.scheduler.loadscope import LoadScopeScheduling

TESTS: Final = Path(__file__).parents[1]
# A file's tests stay together. So do these files, which share what takes long to start or to build: an installation
# with its model, a stack of servers, a compiled library.
TOGETHER: Final = {
    "tests/browser/": "demo",
    "tests/endtoend/test_demo.py": "demo",
    "tests/endtoend/test_push.py": "demo",
    "tests/endtoend/uploads/": "uploads",
    "tests/engine/device/native/": "native",
    "tests/tenancy/": "tenancy",
}
# Long files begin first and short ones last, so that all processes end at about the same time. Servers that tests
# share run on until the end and take their part of the cores, so whoever starts them comes late.
TURNS: Final = ("native", "tests/endtoend/", "tests/engine/", "tests/platform/", "uploads", "tenancy", "demo")


def unit_of(nodeid: str) -> str:
    """What one process runs as a whole: the test's file, or the files that it shares something dear with."""
    return next((unit for path, unit in TOGETHER.items() if nodeid.startswith(path)), nodeid.partition("::")[0])


def turn_of(nodeid: str) -> int:
    """The lower, the earlier a test's unit begins."""
    unit = unit_of(nodeid)
    return next((turn for turn, start in enumerate(TURNS) if unit.startswith(start)), len(TURNS))


class UnitByUnit(LoadScopeScheduling):  # type: ignore[misc]  # it comes without types
    """Whoever is free takes the next unit, in the order in which the tests were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """For what is made once and kept for later runs: whoever comes second waits, and finds it made."""
    folder = os.open(TESTS, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
