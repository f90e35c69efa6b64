"""Engines over tiny models, closed with their tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lorikeet_engine.build import Engine
from tests.support.tiny_engine import TinyBench

OpenEngine = Callable[..., Engine]


@pytest.fixture
def open_engine() -> Iterator[OpenEngine]:
    """Builds an engine of a bench, with settings of `TinyBench.open`."""
    opened: list[Engine] = []

    def open_one(bench: TinyBench, **settings: Any) -> Engine:
        opened.append(bench.open(**settings))
        return opened[-1]

    yield open_one
    for engine in opened:
        engine.close()
