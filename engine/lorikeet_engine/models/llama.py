"""The Llama family: one decoder for every architecture that `model_spec.FAMILY` lists, by configuration.

Knows layers and the order of operations. It owns no KV pages and no adapter bytes, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from lorikeet_engine.lora.arena import LoraArena
from lorikeet_engine.model_spec import ModelSpec
from lorikeet_engine.models.inputs import KvLayer, StepInputs
from lorikeet_engine.models.layers import Projection, rotary_table
from lorikeet_engine.models.weights import LayerWeights, Weights
from lorikeet_engine.ops.interface import DOWN, GATE_UP, OUTPUT, QKV, Ops


class DecoderLayer:
    def __init__(self, *, index: int, spec: ModelSpec, ops: Ops, weights: LayerWeights, arena: LoraArena) -> None:
        self._spec = spec
        self._ops = ops
        self._weights = weights
        self._has_rotary = spec.rope_layers[index]
        self.window = spec.sliding_window[index]
        self._scale = spec.head_dim**-0.5

        def site(linear: Any, modules: tuple[int, ...]) -> Projection:
            return Projection(ops=ops, linear=linear, arena=arena, layer=index, modules=modules)

        self._qkv = site(weights.qkv, QKV)
        self._o = site(weights.o, OUTPUT)
        self._gate_up = site(weights.gate_up, GATE_UP)
        self._down = site(weights.down, DOWN)

    def attend(
        self, x: torch.Tensor, step: StepInputs, rotary: tuple[torch.Tensor, torch.Tensor], plan: Any, kv: KvLayer
    ) -> torch.Tensor:
        spec, weights = self._spec, self._weights
        heads = self._qkv.forward(x, step).view(x.shape[0], -1, spec.head_dim)
        q, k, v = torch.split(heads, [spec.n_heads, spec.n_kv_heads, spec.n_kv_heads], dim=1)
        if weights.q_norm is not None and weights.k_norm is not None:
            q = self._ops.rms_norm(x=q, weight=weights.q_norm, eps=spec.rms_norm_eps)
            k = self._ops.rms_norm(x=k, weight=weights.k_norm, eps=spec.rms_norm_eps)
        q = self._ops.rotary_write_kv(
            q=q,
            k=k,
            v=v,
            rotary=rotary if self._has_rotary else None,
            batch=step.batch,
            k_cache=kv.k,
            v_cache=kv.v,
        )
        mixed = self._ops.attention(q=q, k_cache=kv.k, v_cache=kv.v, plan=plan, scale=self._scale)
        return self._o.forward(mixed, step)

    def forward(
        self,
        x: torch.Tensor,
        residual: torch.Tensor | None,
        step: StepInputs,
        rotary: tuple[torch.Tensor, torch.Tensor],
        plan: Any,
        kv: KvLayer,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(output, residual): their sum is the layer's output, added inside the next norm."""
        weights, eps = self._weights, self._spec.rms_norm_eps
        if residual is None:
            residual, x = x, self._ops.rms_norm(x=x, weight=weights.attention_norm, eps=eps)
        else:
            x, residual = self._ops.add_rms_norm(x=x, residual=residual, weight=weights.attention_norm, eps=eps)
        x = self.attend(x, step, rotary, plan, kv)
        x, residual = self._ops.add_rms_norm(x=x, residual=residual, weight=weights.mlp_norm, eps=eps)
        x = self._ops.silu_mul(gate_up=self._gate_up.forward(x, step))
        return self._down.forward(x, step), residual


class LlamaModel:
    """Token ids to logits over a paged KV cache."""

    def __init__(
        self, *, spec: ModelSpec, ops: Ops, weights: Weights, arena: LoraArena, max_positions: int, block_size: int
    ) -> None:
        self._spec = spec
        self._ops = ops
        self._weights = weights
        self._block_size = block_size
        cos, sin = (table.to(weights.embedding.device) for table in rotary_table(spec, max_positions))
        self._rotary = cos, sin
        self._layers = tuple(
            DecoderLayer(index=index, spec=spec, ops=ops, weights=layer, arena=arena)
            for index, layer in enumerate(weights.layers)
        )

    def forward(self, step: StepInputs, kv: Sequence[KvLayer]) -> torch.Tensor:
        """Compute the step and return the logits [S, vocab] of `step.sampled_tokens`, in the model's dtype."""
        x = self._ops.gather_rows(table=self._weights.embedding, rows=step.token_ids)
        residual: torch.Tensor | None = None
        plans = self._plans(step)
        for layer, pages in zip(self._layers, kv, strict=True):
            x, residual = layer.forward(x, residual, step, self._rotary, plans[layer.window], pages)
        assert residual is not None
        x, residual = (self._ops.gather_rows(table=rows, rows=step.sampled_tokens) for rows in (x, residual))
        x, _ = self._ops.add_rms_norm(
            x=x, residual=residual, weight=self._weights.final_norm, eps=self._spec.rms_norm_eps
        )
        return self._ops.linear(x=x, linear=self._weights.head)

    def _plans(self, step: StepInputs) -> Mapping[int, Any]:
        return {
            window: self._ops.plan_attention(
                batch=step.batch,
                window=window,
                n_kv_heads=self._spec.n_kv_heads,
                block_size=self._block_size,
                dtype=self._weights.dtype,
            )
            for window in set(self._spec.sliding_window)
        }
