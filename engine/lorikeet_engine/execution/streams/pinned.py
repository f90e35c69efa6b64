"""Host memory that a GPU's copy engines may read and write while the host goes on.

On a CPU it is ordinary memory, and what is uploaded is where it should be already.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch

from lorikeet_engine.errors import UnsupportedModel


def pinned(tensor: torch.Tensor, device: torch.device | str) -> torch.Tensor:
    """The same tensor with its pages locked; torch's own pinned memory would be rounded up to a power of two.

    Raises:
        UnsupportedModel: the system does not lock so much memory.
    """
    if torch.device(device).type == "cpu" or not tensor.nbytes:
        return tensor
    storage = tensor.untyped_storage()
    error = int(_runtime().cudaHostRegister(storage.data_ptr(), storage.nbytes(), 0))
    if error:
        raise UnsupportedModel(f"the system does not lock {storage.nbytes()} bytes of host memory (CUDA error {error})")
    # Holds the memory until it is unlocked.
    weakref.finalize(tensor, _unlock, storage)
    return tensor


def _unlock(storage: torch.UntypedStorage) -> None:
    _runtime().cudaHostUnregister(storage.data_ptr())


def _runtime() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]


def upload(numbers: Sequence[int], device: torch.device) -> torch.Tensor:
    """int64 numbers on the device, behind what its current stream has; does not wait for it."""
    return _upload(numbers, torch.int64, device)


def upload_floats(numbers: Sequence[float], device: torch.device) -> torch.Tensor:
    """The same in float64."""
    return _upload(numbers, torch.float64, device)


def _upload(numbers: Sequence[float], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    if device.type == "cpu":
        return torch.tensor(numbers, dtype=dtype)
    # torch keeps the pinned memory until the copy out of it is done
    return torch.tensor(numbers, dtype=dtype, pin_memory=True).to(device, non_blocking=True)
