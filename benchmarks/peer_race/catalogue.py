"""Who takes part, how each is started, and with which `make` target it is installed.

Every engine gets the same model, threads, dtype, seats and adapters; what is set beyond that is what it needs to be at
its best on a CPU. A peer that is not installed is absent, whatever else is true of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peer_race.materials import Materials
from peer_race.process import Program
from peer_race.workload import Scenario

OURS = "lorikeet"
DTYPE = "bfloat16"


@dataclass(frozen=True)
class Peer:
    """A competitor.

    Attributes:
        target: the `make` target that installs it into `environment`, whose `.ready` says that it did; empty = it
            comes with our own environment.
        many_adapters: how it serves several adapters, where it is not all of them together.
        program: what serves a scenario. Two scenarios with equal programs share a process.
    """

    name: str
    target: str
    environment: str
    many_adapters: str
    program: Callable[[Materials, Scenario, int], Program]

    def installed(self, materials: Materials) -> bool:
        return not self.target or (materials.install / self.environment / ".ready").exists()


def ours(materials: Materials, n_threads: int) -> Program:
    settings = {**_shared(materials, n_threads), "store_dir": str(materials.store_dir), "digests": materials.digests}
    return Program(Path(sys.executable), "run_ours.py", settings, {})


def judge(materials: Materials, n_threads: int) -> Program:
    settings = {**_shared(materials, n_threads), "dtype": "float32"}
    return Program(Path(sys.executable), "run_judge.py", settings, {})


def _transformers(materials: Materials, scenario: Scenario, n_threads: int) -> Program:  # noqa: ARG001
    return Program(Path(sys.executable), "run_peft.py", _shared(materials, n_threads), {})


def _llama(materials: Materials, scenario: Scenario, n_threads: int) -> Program:  # noqa: ARG001
    settings = {
        **_shared(materials, n_threads),
        "server": str(materials.install / "llama-build/bin/llama-server"),
        "gguf_dir": str(materials.gguf_dir()),
        "adapters": materials.adapters,
    }
    return Program(Path(sys.executable), "run_llama.py", settings, {})


def _vllm(materials: Materials, scenario: Scenario, n_threads: int) -> Program:
    """Left alone it keeps a core for itself, and takes torch's OpenMP where its own ops want Intel's."""
    environment = materials.install / "vllm"
    settings = _shared(materials, n_threads)
    if not scenario.adapters:
        settings["adapters_dir"] = ""
    variables = {
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{n_threads - 1}",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "LD_PRELOAD": str(environment / "lib/libiomp5.so"),
    }
    return Program(environment / "bin/python", "run_vllm.py", settings, variables)


def _openvino(materials: Materials, scenario: Scenario, n_threads: int) -> Program:  # noqa: ARG001
    settings = {**_shared(materials, n_threads), "ir_dir": str(materials.ir_dir())}
    return Program(materials.install / "openvino/bin/python", "run_openvino.py", settings, {})


def _shared(materials: Materials, n_threads: int) -> dict[str, Any]:
    return {
        "model_dir": str(materials.model_dir),
        "adapters_dir": str(materials.adapters_dir),
        "threads": n_threads,
        "dtype": DTYPE,
    }


PEERS = (
    Peer("transformers", "", "", "", _transformers),
    Peer("llama.cpp", "peer-llama", "llama", "one adapter after another", _llama),
    Peer("openvino", "peer-openvino", "openvino", "one adapter after another, grouped by the caller", _openvino),
    Peer("vllm", "peer-vllm", "vllm", "", _vllm),
)
