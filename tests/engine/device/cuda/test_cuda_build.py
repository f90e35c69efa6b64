"""Building an engine for a GPU, with CPU tensors and interpreted kernels in the GPU's place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lorikeet_engine import build
from lorikeet_engine.build import build_engine
from lorikeet_engine.config import EngineConfig
from lorikeet_engine.errors import UnsupportedModel
from lorikeet_engine.execution.machine.device import GpuMemory
from lorikeet_engine.execution.placement import beside_the_host
from lorikeet_engine.models.weights import load_weights
from lorikeet_engine.ops.cuda import CudaOps, PageMover
from lorikeet_engine.scheduling.events import TokenOutput
from lorikeet_engine.scheduling.plan import SamplingParams
from lorikeet_engine.scheduling.request import Request
from tests.support.asynchronous_device import LateLanes

ModelDir = Callable[[str], Path]
GIB = 1 << 30
BLOCK_BYTES = 16 * 2 * 2 * 2 * 16 * 4  # tokens, keys and values, layers, heads, width, float32


def config_for(directory: Path, **settings: Any) -> EngineConfig:
    return EngineConfig(
        model_dir=directory,
        model_name="tiny",
        store_url=str(directory),
        endpoint="ipc://unused",
        adapter_pool_bytes=1 << 20,
        max_rank=16,
        dtype="float32",
        **settings,
    )


@pytest.fixture
def gpu_in_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that asks for the GPU gets what stands in for it."""
    on_host = {"device": "cpu"}
    backend = SimpleNamespace(
        CudaOps=lambda *, max_tokens, max_rank, **_: CudaOps(device="cpu", max_tokens=max_tokens, max_rank=max_rank),
        PageMover=PageMover,
    )
    monkeypatch.setattr(build, "resolve_device", lambda _: "cuda")
    monkeypatch.setattr(build, "gpu_memory", lambda: GpuMemory(2 * GIB, 2 * GIB))
    monkeypatch.setattr(build, "gpu_backend", lambda: backend)
    monkeypatch.setattr(build, "load_weights", lambda *args, **more: load_weights(*args, **more | on_host))
    monkeypatch.setattr(build, "_placement", lambda _: beside_the_host("cpu", LateLanes(1), PageMover))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA GeForce RTX 4090")
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)


@pytest.mark.slow
@pytest.mark.parametrize("kv_cache_bytes", [1 << 20, 2 * BLOCK_BYTES])
def test_an_engine_for_one_request_at_a_time_starts(
    model_dir: ModelDir, gpu_in_name: None, kv_cache_bytes: int
) -> None:
    """A large model on a full GPU gets no more; the smaller cache has one block to hand out."""
    engine = build_engine(
        config_for(
            model_dir("llama"),
            device="auto",
            max_num_seqs=1,
            max_num_batched_tokens=24,
            max_model_len=16,
            kv_cache_bytes=kv_cache_bytes,
        )
    )
    assert engine.config.max_num_seqs == 1


@pytest.mark.slow
def test_an_engine_for_a_gpu_is_put_together_warmed_up_and_answers(model_dir: ModelDir, gpu_in_name: None) -> None:
    engine = build_engine(
        config_for(model_dir("llama"), device="auto", max_num_batched_tokens=24, kv_cache_bytes=1 << 20)
    )
    assert engine.config.device == "cuda"
    assert engine.config.block_size == 16
    assert engine.config.max_num_seqs == engine.budget.suggested_max_num_seqs == 5
    assert dict(engine.budget.rows)["graphs"] > 0
    request = Request(
        request_id="r",
        tenant="t",
        prompt=(5, 6, 7),
        max_tokens=3,
        sampling=SamplingParams(),
        adapter=None,
    )
    engine.loop.submit([request], 0.0)
    tokens = []
    while engine.loop.has_work:
        tokens += [event.token for event in engine.loop.step(0.0) if isinstance(event, TokenOutput)]
    engine.close()
    assert len(tokens) == 3


def test_a_gpu_that_is_not_there_is_refused_by_name(model_dir: ModelDir) -> None:
    with pytest.raises(UnsupportedModel, match="cuda: no CUDA device"):
        build_engine(config_for(model_dir("llama"), device="cuda"))


def test_an_open_device_without_a_gpu_is_the_cpu(model_dir: ModelDir) -> None:
    engine = build_engine(config_for(model_dir("llama"), device="auto", threads=1, kv_cache_bytes=1 << 24))
    engine.close()
    assert (engine.config.device, engine.config.block_size, engine.config.max_num_seqs) == ("cpu", 32, 32)
