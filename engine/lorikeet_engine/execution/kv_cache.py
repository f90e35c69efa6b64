"""The KV tensors: per layer K and V [blocks, KV heads, block, D].

The bytes half of the KV pool; who may use which block is decided in `memory`. Block 0 is zero, belongs to nobody and
pads every block table, so that a padded entry reads zeros and never another request's tokens.
"""

from __future__ import annotations

import torch

from lorikeet_engine.model_spec import ModelSpec
from lorikeet_engine.models.inputs import KvLayer


class KvCache:
    def __init__(self, spec: ModelSpec, *, n_blocks: int, block_size: int, dtype: torch.dtype) -> None:
        shape = (n_blocks, spec.n_kv_heads, block_size, spec.head_dim)
        self.layers = tuple(
            KvLayer(torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=dtype)) for _ in range(spec.n_layers)
        )
        self.n_blocks = n_blocks
        self.block_size = block_size
