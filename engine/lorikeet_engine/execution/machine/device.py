"""What the machine offers: which device serves, in which number format, and how much of it is free."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

from lorikeet_engine.errors import UnsupportedModel
from lorikeet_engine.execution.machine.cgroup import cpu_quota

MANY_CORES = 1 << 16

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """Bytes of the GPU, and those of them that nobody holds."""

    total_bytes: int
    free_bytes: int

    def allowed(self, share: float) -> int:
        """What this process may still take if it may have `share` of the whole; others' bytes count against it."""
        return max(0, int(share * self.total_bytes) - (self.total_bytes - self.free_bytes))


def resolve_device(name: str) -> str:
    """ "cpu" or "cuda"; "auto" is cuda where there is one.

    Raises:
        UnsupportedModel: cuda was asked for and is not there.
    """
    has_cuda = torch.cuda.is_available()
    if name == "auto":
        return "cuda" if has_cuda else "cpu"
    if name == "cuda" and not has_cuda:
        raise UnsupportedModel("device cuda: no CUDA device")
    return name


def resolve_dtype(name: str, device: str = "cpu") -> torch.dtype:
    """'auto' is bf16 where the device computes in it; elsewhere bf16 is emulated and slower than float32.

    Raises:
        UnsupportedModel: the device cannot compute in the format that was asked for.
    """
    if name == "auto":
        name = "bfloat16" if _computes_in_bf16(device) else "float32"
    if name == "bfloat16" and not _multiplies_in_bf16(device):
        raise UnsupportedModel(f"dtype bfloat16: this {device} device cannot multiply in it; set float32, or auto")
    return DTYPES[name]


def _computes_in_bf16(device: str) -> bool:
    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def _multiplies_in_bf16(device: str) -> bool:
    return _computes_in_bf16(device) if device == "cuda" else bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def gpu_memory() -> GpuMemory:
    """Of the current device, as the driver tells it."""
    free, total = torch.cuda.mem_get_info()
    return GpuMemory(total, free)


def set_threads(n_threads: int) -> int:
    """Size torch's pool; 0 leaves one core to the rest of the machine, since a busy core stalls every barrier."""
    cores = min(len(os.sched_getaffinity(0)), int(cpu_quota() or MANY_CORES))
    chosen = n_threads or max(1, cores - 1)
    torch.set_num_threads(chosen)
    return chosen
