from __future__ import annotations

import pytest
import torch

from lorikeet_engine.ops.interface import Ops
from tests.support.ops_cases import BACKENDS, DTYPES


@pytest.fixture(params=list(BACKENDS))
def ops(request: pytest.FixtureRequest) -> Ops:
    return BACKENDS[request.param]()


@pytest.fixture(params=list(DTYPES))
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return DTYPES[request.param]
