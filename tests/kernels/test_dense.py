"""Linears, norms and the gated activation against the oracle."""

from __future__ import annotations

import pytest
import torch

from lorikeet_engine.ops.interface import Ops
from lorikeet_engine.ops.reference import ReferenceOps
from tests.support.ops_cases import TOLERANCE, relative_error

EXACT = ReferenceOps(exact=True)


def randn(*shape: int, dtype: torch.dtype, seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("n_tokens", [1, 2, 7, 64, 130])
@pytest.mark.parametrize("with_bias", [False, True])
def test_a_packed_linear_equals_the_plain_product(ops: Ops, dtype: torch.dtype, n_tokens: int, with_bias: bool) -> None:
    weight, bias = randn(80, 48, dtype=dtype), randn(80, dtype=dtype, seed=2) if with_bias else None
    x = randn(n_tokens, 48, dtype=dtype, seed=3)
    expected = EXACT.linear(x=x, linear=EXACT.pack_linear(weight=weight, bias=bias))
    packed = ops.pack_linear(weight=weight.clone(), bias=bias)
    assert relative_error(ops.linear(x=x, linear=packed), expected) <= TOLERANCE[dtype]
    assert packed.nbytes == weight.nbytes + (bias.nbytes if bias is not None else 0)


@pytest.mark.parametrize("shape", [(1, 64), (7, 576), (5, 3, 16)])
@pytest.mark.parametrize("magnitude", [1e-3, 1.0, 1e3])
def test_a_norm_is_computed_in_float32(ops: Ops, dtype: torch.dtype, shape: tuple[int, ...], magnitude: float) -> None:
    x, weight = randn(*shape, dtype=dtype) * magnitude, randn(shape[-1], dtype=dtype, seed=2)
    expected = EXACT.rms_norm(x=x, weight=weight, eps=1e-5)
    assert relative_error(ops.rms_norm(x=x, weight=weight, eps=1e-5), expected) <= TOLERANCE[dtype]


def test_a_norm_reads_a_strided_slice(ops: Ops, dtype: torch.dtype) -> None:
    heads, weight = randn(5, 8, 16, dtype=dtype), randn(16, dtype=dtype, seed=2)
    expected = EXACT.rms_norm(x=heads[:, 2:5], weight=weight, eps=1e-6)
    assert relative_error(ops.rms_norm(x=heads[:, 2:5], weight=weight, eps=1e-6), expected) <= TOLERANCE[dtype]


def test_the_sum_that_a_norm_reads_becomes_the_residual(ops: Ops, dtype: torch.dtype) -> None:
    x, residual, weight = (randn(6, 64, dtype=dtype, seed=n) for n in range(3))
    residual, weight = residual.clone(), weight[0]
    normed, total = ops.add_rms_norm(x=x, residual=residual, weight=weight, eps=1e-5)
    expected, expected_total = EXACT.add_rms_norm(x=x, residual=residual, weight=weight, eps=1e-5)
    assert relative_error(total, expected_total) <= TOLERANCE[dtype]
    assert relative_error(normed, expected) <= TOLERANCE[dtype]


def test_the_gate_passes_the_upper_half(ops: Ops, dtype: torch.dtype) -> None:
    gate_up = randn(9, 96, dtype=dtype) * 4
    assert relative_error(ops.silu_mul(gate_up=gate_up), EXACT.silu_mul(gate_up=gate_up)) <= TOLERANCE[dtype]
