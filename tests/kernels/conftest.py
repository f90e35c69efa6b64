from __future__ import annotations

import pytest

from lorikeet_engine.ops.interface import Ops
from tests.support.closeness import DTYPES
from tests.support.ops_cases import BACKENDS, dtypes_of


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for `ops` and `dtype` runs for every type that a backend serves."""
    if {"ops", "dtype"} <= set(metafunc.fixturenames):
        pairs = [
            pytest.param(name, DTYPES[dtype], id=f"{name}-{dtype}") for name in BACKENDS for dtype in dtypes_of(name)
        ]
        metafunc.parametrize(("ops", "dtype"), pairs, indirect=["ops"])
    elif "ops" in metafunc.fixturenames:
        metafunc.parametrize("ops", list(BACKENDS), indirect=True)


@pytest.fixture
def ops(request: pytest.FixtureRequest) -> Ops:
    return BACKENDS[request.param]()
