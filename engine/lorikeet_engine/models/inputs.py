"""What one forward pass needs besides the weights: built once per step, passed down unchanged to every layer."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lorikeet_engine.ops.interface import AttentionBatch, LoraRun


@dataclass(frozen=True, slots=True)
class StepInputs:
    """
    Attributes:
        token_ids: int64 [T], all rows one after another.
        positions: int64 [T].
        batch: rows, pages and slots for attention.
        runs: which tokens belong to which adapter; ascending, disjoint.
        sampled_tokens: int64 [S], the tokens whose logits are wanted, in row order.
    """

    token_ids: torch.Tensor
    positions: torch.Tensor
    batch: AttentionBatch
    runs: tuple[LoraRun, ...]
    sampled_tokens: torch.Tensor


@dataclass(frozen=True, slots=True)
class KvLayer:
    """The pages of one layer, K and V [blocks, KV heads, block, D]."""

    k: torch.Tensor
    v: torch.Tensor
