"""The native ops as a shared library: compiled once on the machine that runs it, then loaded from the user's cache.

The library calls the OpenMP runtime that torch has loaded, found by its mapping in this process; a second runtime
would bring a second team of threads, and two teams on the same cores wait for each other. Knows nothing of tensors.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

log = logging.getLogger(__name__)

SOURCES = Path(__file__).parent / "sources"
FLAGS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-fopenmp",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-w",
)
# GCC's calls are served by every runtime; Clang's only by LLVM's and Intel's.
COMPILERS = {"libgomp": ("g++",), "libiomp5": ("g++", "clang++"), "libomp": ("g++", "clang++")}
COMPILE_TIMEOUT_S = 300


class NoNativeOps(Exception):
    """Why there is no library; the torch ops serve."""


def load_library(cache_dir: Path | None = None) -> ctypes.CDLL | None:
    """The library, compiled now unless the cache has it; None where it cannot be had, which one log line explains."""
    try:
        runtime = openmp_runtime()
        compiler = find_compiler(runtime)
        path = (cache_dir or default_cache_dir()) / f"{_fingerprint(compiler, runtime)}.so"
        if not path.exists():
            _build(path, compiler, runtime)
        return ctypes.CDLL(str(path))
    except (NoNativeOps, OSError, subprocess.SubprocessError) as error:
        log.info("no native CPU ops, torch's serve: %s", error)
        return None


def openmp_runtime() -> Path:
    """The OpenMP library that this process, and so torch, uses.

    Raises:
        NoNativeOps: there is none or more than one, or the system does not say.
    """
    torch.get_num_threads()  # makes torch load and size its runtime
    maps = Path("/proc/self/maps")
    if not maps.exists():
        raise NoNativeOps("this system does not list a process's libraries")
    found = set(re.findall(r"(/\S*/lib(?:gomp|iomp5|omp)\b[^/\s]*)$", maps.read_text(), re.MULTILINE))
    if len(found) != 1:
        raise NoNativeOps(f"torch has {len(found)} OpenMP runtimes loaded")
    return Path(found.pop())


def find_compiler(runtime: Path) -> str:
    kind = re.split(r"[-.]", runtime.name)[0]
    for name in COMPILERS[kind]:
        if path := shutil.which(name):
            return path
    raise NoNativeOps(f"no C++ compiler ({' or '.join(COMPILERS[kind])}) on this machine")


def default_cache_dir() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lorikeet" / "native"


def _fingerprint(compiler: str, runtime: Path) -> str:
    """What a library depends on: sources, flags, compiler, runtime, and the CPU that -march=native means."""
    version = subprocess.run([compiler, "--version"], capture_output=True, check=True, timeout=COMPILE_TIMEOUT_S)
    digest = hashlib.sha256(repr((FLAGS, compiler, version.stdout, str(runtime), _cpu())).encode())
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + source.read_bytes())
    return digest.hexdigest()[:32]


def _cpu() -> list[str]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return sorted({line for line in lines if line.startswith(("flags", "model name", "Features", "CPU part"))})


def _build(path: Path, compiler: str, runtime: Path) -> None:
    """Compile beside `path` and rename: a process that looks meanwhile sees the whole library or none."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="build-") as name:
        folder = Path(name)
        sources = sorted(SOURCES.glob("*.cpp"))
        _run([[compiler, *FLAGS, "-c", str(s), "-o", str(folder / f"{s.stem}.o")] for s in sources])
        objects = [str(folder / f"{source.stem}.o") for source in sources]
        # Without -fopenmp here, which would name the compiler's own runtime beside torch's.
        _run([[compiler, "-shared", "-o", str(folder / path.name), *objects, str(runtime)]])
        (folder / path.name).replace(path)
    log.info("compiled the native CPU ops with %s", compiler)


def _run(commands: Sequence[Sequence[str]]) -> None:
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False)
        if done.returncode:
            raise NoNativeOps(f"{command[0]} refused: {(done.stderr or done.stdout).strip()[:500]}")
