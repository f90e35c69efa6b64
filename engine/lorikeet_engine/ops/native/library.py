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
import stat
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
DIGEST_SUFFIX = ".sha256"


class NoNativeOps(Exception):
    """Why there is no library."""


def load_library(cache_dir: Path | None = None) -> ctypes.CDLL:
    """The library, compiled now unless the cache has it whole.

    Raises:
        NoNativeOps: it cannot be had; the message says why.
    """
    try:
        runtime = openmp_runtime()
        compiler = find_compiler(runtime)
        path = (cache_dir or default_cache_dir()) / f"{_fingerprint(compiler, runtime)}.so"
        if not _is_whole(path):
            _build(path, compiler, runtime)
        _check_private(path.parent, path)
        return ctypes.CDLL(str(path))
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        raise NoNativeOps(str(error)) from error


def openmp_runtime() -> Path:
    """The OpenMP library that this process, and so torch, uses.

    Raises:
        NoNativeOps: there is none or more than one, or the system does not say.
    """
    torch.get_num_threads()  # makes torch load and size its runtime
    maps = Path("/proc/self/maps")
    if not maps.exists():
        raise NoNativeOps("this system does not list a process's libraries")
    paths = {line.split(maxsplit=5)[-1] for line in maps.read_text().splitlines() if "/" in line}
    found = {path for path in paths if re.match(r"lib(gomp|iomp5|omp)\b", path.rpartition("/")[2])}
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


def _is_whole(path: Path) -> bool:
    """Whether the library is there as it was built: a crash may have left a part of it, which ends whoever loads it."""
    digest = path.with_suffix(DIGEST_SUFFIX)
    return path.exists() and digest.exists() and digest.read_text() == _digest(path)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_private(*paths: Path) -> None:
    """Refuse what somebody else may have put or may change: a library runs with all that this process may do."""
    for path in paths:
        status = path.stat()
        if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise NoNativeOps(f"{path} is not this user's alone")


def _build(path: Path, compiler: str, runtime: Path) -> None:
    """Compile beside `path` and rename: a process that looks meanwhile sees the whole library or none."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    _check_private(path.parent)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="build-") as name:
        folder = Path(name)
        sources = sorted(SOURCES.glob("*.cpp"))
        _run([[compiler, *FLAGS, "-c", str(s), "-o", str(folder / f"{s.stem}.o")] for s in sources])
        objects = [str(folder / f"{source.stem}.o") for source in sources]
        # Without -fopenmp here, which would name the compiler's own runtime beside torch's.
        _run([[compiler, "-shared", "-o", str(folder / path.name), *objects, str(runtime)]])
        (folder / path.name).chmod(0o700)
        digest = folder / "digest"
        digest.write_text(_digest(folder / path.name))
        (folder / path.name).replace(path)
        digest.replace(path.with_suffix(DIGEST_SUFFIX))
    log.info("compiled the native CPU ops with %s", compiler)


def _run(commands: Sequence[Sequence[str]]) -> None:
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False)
        if done.returncode:
            raise NoNativeOps(f"{command[0]} refused: {(done.stderr or done.stdout).strip()[:500]}")
