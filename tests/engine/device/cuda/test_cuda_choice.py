"""Which device and which number format serve."""

from __future__ import annotations

import pytest
import torch

from lorikeet_engine.errors import UnsupportedModel
from lorikeet_engine.execution.machine.device import resolve_device, resolve_dtype


@pytest.fixture
def has_cuda(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: request.param)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)


@pytest.mark.parametrize("has_cuda", [False], indirect=True)
def test_cuda_is_refused_by_name_where_there_is_none(has_cuda: None) -> None:
    with pytest.raises(UnsupportedModel, match="cuda: no CUDA device"):
        resolve_device("cuda")
    assert resolve_device("auto") == resolve_device("cpu") == "cpu"


@pytest.mark.parametrize("has_cuda", [True], indirect=True)
def test_an_open_device_is_the_gpu_where_there_is_one(has_cuda: None) -> None:
    assert [resolve_device(name) for name in ("auto", "cuda", "cpu")] == ["cuda", "cuda", "cpu"]


@pytest.mark.parametrize("has_cuda", [True], indirect=True)
def test_a_gpu_that_emulates_bfloat16_serves_in_float32_and_refuses_the_other(has_cuda: None) -> None:
    assert resolve_dtype("auto", "cuda") == torch.float32
    assert resolve_dtype("float16", "cuda") == torch.float16
    with pytest.raises(UnsupportedModel, match="bfloat16: this cuda device"):
        resolve_dtype("bfloat16", "cuda")
