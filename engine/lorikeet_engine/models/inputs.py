"""What one forward pass needs besides the weights: built once per step, passed down unchanged to every layer."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lorikeet_engine.ops.interface import AttentionBatch, LoraBatch


@dataclass(frozen=True, slots=True)
class StepInputs:
    """
    Attributes:
        token_ids: int64 [T], all rows one after another.
        batch: rows, pages and slots for attention.
        lora: which tokens belong to which adapter, ascending and disjoint; None = no row has one.
        sampled_tokens: int64 [S], the tokens whose logits are wanted, in row order.
    """

    token_ids: torch.Tensor
    batch: AttentionBatch
    lora: LoraBatch | None
    sampled_tokens: torch.Tensor


@dataclass(frozen=True, slots=True)
class KvLayer:
    """The pages of one layer, K and V [blocks, KV heads, block, D]."""

    k: torch.Tensor
    v: torch.Tensor
