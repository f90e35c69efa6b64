"""Every formula about bytes and work, once. Plain arithmetic; sources are named beside each."""

from __future__ import annotations

from lorikeet_engine.model_spec import ModelSpec


def kv_bytes_per_token(spec: ModelSpec, *, itemsize: int) -> int:
    """Keys and values of one token over all layers: 2 · layers · kv_heads · head_dim · itemsize."""
    return 2 * spec.n_layers * spec.n_kv_heads * spec.head_dim * itemsize


def kv_block_bytes(spec: ModelSpec, *, block_size: int, itemsize: int) -> int:
    return kv_bytes_per_token(spec, itemsize=itemsize) * block_size
