"""What launchers launch, as builds for a compiler that has no GPU.

A launcher runs here over tensors without memory, and its kernels are replaced by a note of what they were called with;
so what is compiled ahead of time is what a GPU would be asked for, default configuration included.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch

from tests.support.aot import Build

TYPES = {
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.uint8: "u8",
}
ALIGNMENT = 16


@dataclass(frozen=True)
class Launch:
    """One call of one kernel; `signature` and `constants` as `Build` has them."""

    kernel: str
    signature: dict[str, str]
    constants: dict[str, Any]
    num_warps: int
    num_stages: int

    def build(self, name: str, target: str) -> Build:
        function = self.kernel.partition(":")[2].removesuffix("_kernel")
        return Build(
            f"{name}-{function}", self.kernel, target, self.signature, self.constants, self.num_warps, self.num_stages
        )


class _Note:
    """In the place of a kernel: launching it writes down the launch."""

    def __init__(self, name: str, kernel: Any, launches: list[Launch]) -> None:
        self._name, self._kernel, self._launches = name, kernel, launches

    def __getitem__(self, grid: object) -> Callable[..., None]:
        return self._launch

    def _launch(self, *args: Any, num_warps: int = 4, num_stages: int = 3, **constants: Any) -> None:
        options = self._kernel.kwargs
        general = set(options["do_not_specialize"] or ())
        unaligned = general | set(options["do_not_specialize_on_alignment"] or ())
        names = list(inspect.signature(self._kernel.fn).parameters)
        given = dict(zip(names, args, strict=False))
        # The runtime takes an argument that is None for a constant.
        signature = {name: _type_of(arg, name in unaligned) for name, arg in given.items() if arg is not None}
        constants |= {name: None for name, arg in given.items() if arg is None}
        if "UPCAST" in names:
            constants["UPCAST"] = False
        self._launches.append(Launch(self._name, signature, constants, num_warps, num_stages))


def _type_of(argument: Any, is_unaligned: bool) -> str:
    """Every allocation is aligned, and of numbers the runtime looks."""
    if isinstance(argument, torch.Tensor):
        return f"*{TYPES[argument.dtype]}" + ("" if is_unaligned else ":16")
    if isinstance(argument, float):
        return "fp32"
    return "i32" if is_unaligned or argument % ALIGNMENT else "i32:16"


def launches_of(module: ModuleType, launch: Callable[[], object]) -> list[Launch]:
    """The kernels of `module` that a call of one of its launchers launches, in order."""
    launches: list[Launch] = []
    kernels = {name: kernel for name, kernel in vars(module).items() if name.endswith("_kernel")}
    notes = {name: _Note(f"{module.__name__}:{name}", kernel, launches) for name, kernel in kernels.items()}
    with patch.dict(vars(module), notes):
        launch()
    return launches
