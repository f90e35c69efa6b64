"""Kernels compiled for GPUs that are not there, and what the compiler made of them.

Triton needs no driver to compile, and its wheel carries an assembler and `cuobjdump` for NVIDIA's chips. The pytest
process runs triton's interpreter, so a whole list of builds is compiled in one child process without it; the same
child can run another triton version, put in front of the module path.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

ROOT = Path(__file__).parents[2]
TARGETS = {"sm_80": ("cuda", 80, 32), "sm_90": ("cuda", 90, 32), "gfx942": ("hip", "gfx942", 64)}
# What one program may have of a chip's shared memory.
SHARED_LIMIT = {"sm_80": 163 * 1024, "sm_90": 227 * 1024, "gfx942": 64 * 1024}
# The versions to compile with: the one installed here, and those that the Makefile lays beside it.
INSTALLED = "installed"
TRITONS: dict[str, Path | None] = {INSTALLED: None, **{p.name: p for p in sorted(Path(sys.prefix).glob("triton-*"))}}


@dataclass(frozen=True)
class Build:
    """One kernel at one set of constants.

    Attributes:
        kernel: "module:function".
        signature: type of every argument that is not a constant; ":16" behind it says what the launcher's runtime
            would find: a pointer or number divisible by 16.
    """

    name: str
    kernel: str
    target: str
    signature: Mapping[str, str]
    constants: Mapping[str, Any]
    num_warps: int = 4
    num_stages: int = 3

    def __str__(self) -> str:
        return f"{self.name}-{self.target}"


@dataclass(frozen=True)
class Compiled:
    """What came out: the assembly text, and per-thread registers, bytes of stack and bytes of shared memory."""

    text: str = field(repr=False)
    registers: int
    stack: int
    shared: int

    @property
    def wide_loads(self) -> int:
        """Loads of 16 bytes from global memory, asynchronous copies of 16 bytes included."""
        wide = r"ld\.global[\w.:]*\.v4|cp\.async\.cg\.shared\.global[^;]*, 0x10|(?:global|buffer)_load_dwordx4"
        return len(re.findall(wide, self.text))

    @property
    def async_copies(self) -> int:
        return len(re.findall(r"cp\.async\.c[ag]\.", self.text))

    @property
    def matrix_products(self) -> int:
        return len(re.findall(r"\bmma\.sync|\bwgmma\.mma_async|\bv_mfma_", self.text))


def compile_all(builds: Sequence[Build], triton_path: Path | None = None) -> dict[str, Compiled]:
    """Compile in a child process, by `str(build)`; an error of the compiler names the build that it met."""
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    env["PYTHONPATH"] = os.pathsep.join(str(path) for path in (triton_path, ROOT, env.get("PYTHONPATH")) if path)
    child = subprocess.run(
        [sys.executable, "-m", "tests.support.aot"],
        input=json.dumps([asdict(build) for build in builds]),
        capture_output=True,
        text=True,
        env=env,
        cwd=ROOT,
        check=False,
    )
    if child.returncode:
        raise RuntimeError(f"compiling ahead of time failed:\n{child.stderr[-6000:]}")
    report = json.loads(child.stdout.splitlines()[-1])
    if triton_path and not report["triton"].startswith(triton_path.name.removeprefix("triton-")):
        raise RuntimeError(f"triton {report['triton']} was imported, not the one in {triton_path}")
    results = report["compiled"]
    return {str(build): Compiled(**result) for build, result in zip(builds, results, strict=True)}


def compile_one(build: Build) -> Compiled:
    module, _, function = build.kernel.partition(":")
    kernel = getattr(importlib.import_module(module), function)
    signature = {name: build.signature.get(name, "constexpr").partition(":")[0] for name in kernel.arg_names}
    aligned = {
        (index,): [["tt.divisibility", 16]]
        for index, name in enumerate(kernel.arg_names)
        if build.signature.get(name, "").endswith(":16")
    }
    compiled = triton.compile(
        ASTSource(kernel, signature, constexprs=dict(build.constants), attrs=aligned),
        target=GPUTarget(*TARGETS[build.target]),
        options={"num_warps": build.num_warps, "num_stages": build.num_stages},
    )
    if build.target.startswith("gfx"):
        text = compiled.asm["amdgcn"]
        registers, stack = (
            _number(rf"\.{name}:\s+(\d+)", text) for name in ("vgpr_count", "private_segment_fixed_size")
        )
    else:
        text = compiled.asm["ptx"]
        usage = _resource_usage(compiled.asm["cubin"])
        registers, stack = _number(r"REG:(\d+)", usage), _number(r"STACK:(\d+)", usage)
    return Compiled(text, registers, stack, compiled.metadata.shared)


def _resource_usage(cubin: bytes) -> str:
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        report = subprocess.check_output([str(tool), "--dump-resource-usage", file.name], text=True)
    return str(report)


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    if found is None:
        raise ValueError(f"{pattern} is not in the compiler's report")
    return int(found[1])


def main() -> None:
    results = []
    for build in (Build(**fields) for fields in json.load(sys.stdin)):
        try:
            results.append(asdict(compile_one(build)))
        except Exception as error:
            raise RuntimeError(f"{build} with triton {triton.__version__}") from error
    json.dump({"triton": triton.__version__, "compiled": results}, sys.stdout)


if __name__ == "__main__":
    main()
