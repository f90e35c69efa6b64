"""The native ops' library: one OpenMP runtime, one compilation, and torch's ops where there is no compiler."""

from __future__ import annotations

import ctypes
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from lorikeet_engine.build import choose_ops
from lorikeet_engine.model_spec import load_model_spec
from lorikeet_engine.ops.cpu import CpuOps
from lorikeet_engine.ops.interface import LoraBatch, LoraRun, SiteShape
from lorikeet_engine.ops.native import library
from lorikeet_engine.ops.native.library import NoNativeOps
from lorikeet_engine.ops.native.ops import NativeCpuOps
from tests.support.attention_cases import AttentionCase, attention_data
from tests.support.closeness import TOLERANCE, relative_error
from tests.support.lora_cases import LORA_CASES, SITES, LoraData, lora_data
from tests.support.ops_cases import NATIVE_LIBRARY

PROBE = """
import os, re, torch
from lorikeet_engine.ops.native.library import load_library
from lorikeet_engine.ops.native.ops import NativeCpuOps
torch.set_num_threads(2)
ops = NativeCpuOps(load_library())
torch.randn(512, 512) @ torch.randn(512, 512)
before = len(os.listdir("/proc/self/task"))
x = torch.randn(4, 64)
ops.linear(x=x, linear=ops.pack_linear(weight=torch.randn(192, 64), bias=None))
maps = open("/proc/self/maps").read()
names = sorted(set(re.findall(r"/lib(?:gomp|iomp5|omp)[^/\\s]*$", maps, re.M)))
print(names, len(os.listdir("/proc/self/task")) - before)
"""


@pytest.fixture
def ops() -> NativeCpuOps:
    return NativeCpuOps(NATIVE_LIBRARY)


@pytest.fixture
def portable(portable_library: ctypes.CDLL) -> NativeCpuOps:
    return NativeCpuOps(portable_library)


def add(ops: NativeCpuOps, data: LoraData, site: SiteShape, runs: tuple[LoraRun, ...], out: torch.Tensor) -> None:
    batch = LoraBatch(runs, torch.tensor(ops.encode_runs(runs, len(data.x))))
    ops.add_lora(out=out, x=data.x, arena=data.arena.storage, batch=batch, layer=0, site=site, base_bias=None)


def test_the_library_shares_torchs_runtime_and_threads() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, env=environment, check=True)
    runtime = library.openmp_runtime().name
    assert done.stdout.strip() == f"['/{runtime}'] 0"


def test_it_is_compiled_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(2):
        library.load_library(tmp_path)
    assert [record.getMessage().split(" with ")[0] for record in caplog.records] == ["compiled the native CPU ops"]
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".sha256", ".so"]


@pytest.mark.parametrize("n_bytes", [0, 20_000])
def test_what_a_crash_left_of_a_library_is_compiled_anew(filled_cache: Path, n_bytes: int) -> None:
    """Loading half a library ends the process."""
    (path,) = filled_cache.glob("*.so")
    whole = path.read_bytes()
    path.write_bytes(whole[:n_bytes])
    library.load_library(filled_cache)
    assert path.stat().st_size == len(whole)


def test_a_library_that_others_may_change_is_not_loaded(filled_cache: Path) -> None:
    library.load_library(filled_cache)
    (path,) = filled_cache.glob("*.so")
    for place in (path, filled_cache):
        place.chmod(0o777)
        with pytest.raises(NoNativeOps, match="is not this user's alone"):
            library.load_library(filled_cache)
        place.chmod(0o700)


def test_without_a_home_there_is_no_library_and_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(NoNativeOps, match="home directory"):
        library.load_library()


def test_without_a_compiler_one_line_says_that_torch_serves(
    tmp_path: Path, model_dir: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    spec = load_model_spec(model_dir("llama"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert isinstance(choose_ops(spec, torch.float32, "none"), CpuOps)
    assert [record.getMessage() for record in caplog.records] == [
        "no native CPU ops, torch's serve: no C++ compiler (g++) on this machine"
    ]


def test_a_source_that_does_not_compile_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "broken.cpp").write_text("int broken(")
    monkeypatch.setattr(library, "SOURCES", sources)
    with pytest.raises(NoNativeOps, match="refused"):
        library.load_library(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_row_of_a_linear_is_the_same_to_the_last_bit_in_any_batch(ops: NativeCpuOps, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(5)
    weight = torch.randn(208, 96, generator=generator).to(dtype)
    x = torch.randn(130, 96, generator=generator).to(dtype)
    packed = ops.pack_linear(weight=weight, bias=None)
    together = ops.linear(x=x, linear=packed)
    for n_rows in (1, 2, 3, 8, 13, 65):
        assert torch.equal(ops.linear(x=x[:n_rows], linear=packed), together[:n_rows])


def test_an_adapters_delta_is_the_same_to_the_last_bit_in_any_batch(ops: NativeCpuOps) -> None:
    case = next(case for case in LORA_CASES if case.name == "one_token_each")
    data = lora_data(case, "qkv", torch.bfloat16)
    site = data.arena.site(SITES["qkv"])
    together, alone = data.out.clone(), data.out.clone()
    add(ops, data, site, data.runs, together)
    for run in data.runs:
        add(ops, data, site, (run,), alone)
    assert torch.equal(together, alone)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_cpu_without_wide_vectors_computes_the_same(
    ops: NativeCpuOps, dtype: torch.dtype, portable: NativeCpuOps
) -> None:
    case = AttentionCase("portable", ((40, 1), (200, 1)), heads=6, kv_heads=2, width=48)
    data = attention_data(case, dtype)
    lora = lora_data(next(case for case in LORA_CASES if case.name == "one_token_each"), "gate_up", dtype)
    site = lora.arena.site(SITES["gate_up"])
    weight, x = torch.randn(80, 48).to(dtype), torch.randn(3, 48).to(dtype)
    results = []
    for backend in (ops, portable):
        plan = backend.plan_attention(batch=data.batch, window=0, n_kv_heads=2, block_size=16, dtype=dtype)
        out = lora.out.clone()
        add(backend, lora, site, lora.runs, out)
        results.append(
            (
                backend.attention(q=data.q, k_cache=data.k_cache, v_cache=data.v_cache, plan=plan, scale=0.2),
                backend.linear(x=x, linear=backend.pack_linear(weight=weight, bias=None)),
                backend.silu_mul(gate_up=out),
            )
        )
    for here, there in zip(*results, strict=True):
        assert relative_error(there, here) <= TOLERANCE[dtype]
