"""A device's ops for tensors in host memory: every call carries its tensors there, and what it wrote back.

So that one case table and its helpers, which know the host only, hold a GPU's backend to the oracle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch

from lorikeet_engine.ops.interface import Ops

WRITTEN = ("out", "k_cache", "v_cache")


class CarriedOps:
    """`Ops` by delegation; plans and packed linears stay where they were made."""

    def __init__(self, ops: Ops, device: str) -> None:
        self._ops = ops
        self._device = device

    def __getattr__(self, name: str) -> Callable[..., Any]:
        verb = getattr(self._ops, name)

        def carried(*args: Any, **tensors: Any) -> Any:
            there = {key: self._carry(value) for key, value in tensors.items()}
            result = verb(*args, **there)
            for key in WRITTEN:
                if key in tensors:
                    tensors[key].copy_(there[key])
            return _back(result)

        return carried

    def _carry(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.to(self._device)
        if isinstance(value, tuple):
            return tuple(self._carry(part) for part in value)
        if is_dataclass(value) and not isinstance(value, type) and value.__class__.__name__.endswith("Batch"):
            moved = {
                field.name: getattr(value, field.name).to(self._device)
                for field in fields(value)
                if isinstance(getattr(value, field.name), torch.Tensor)
            }
            return replace(value, **moved)
        return value


def _back(result: Any) -> Any:
    if isinstance(result, torch.Tensor):
        return result.cpu()
    return tuple(_back(part) for part in result) if isinstance(result, tuple) else result
