"""Linears, norms, the gated activation, embeddings and the choice of a token against the oracle."""

from __future__ import annotations

import pytest
import torch

from lorikeet_engine.ops.interface import Ops
from lorikeet_engine.ops.reference import ReferenceOps
from tests.support.closeness import TOLERANCE, relative_error

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


@pytest.mark.parametrize("n_out", [16, 48, 80, 96, 208, 100])
def test_a_packed_weight_is_read_back_row_by_row(ops: Ops, dtype: torch.dtype, n_out: int) -> None:
    weight = randn(n_out, 32, dtype=dtype)
    packed = ops.pack_linear(weight=weight.clone(), bias=None)
    for first, end in ((0, n_out), (0, 1), (5, 16), (n_out - 3, n_out), (n_out // 3, n_out // 2)):
        for n_rows in (7, n_out):
            pieces = list(ops.unpack_linear(linear=packed, first=first, end=end, n_rows=n_rows))
            assert max(map(len, pieces)) <= n_rows
            assert torch.equal(torch.cat(pieces), weight[first:end])


@pytest.mark.parametrize("shape", [(1, 64), (7, 576), (5, 3, 16), (2, 1, 80), (2, 3008)])
@pytest.mark.parametrize("magnitude", [1e-3, 1.0, 1e3])
def test_a_norm_is_computed_in_float32(ops: Ops, dtype: torch.dtype, shape: tuple[int, ...], magnitude: float) -> None:
    x, weight = randn(*shape, dtype=dtype) * magnitude, randn(shape[-1], dtype=dtype, seed=2)
    expected = EXACT.rms_norm(x=x, weight=weight, eps=1e-5)
    assert relative_error(ops.rms_norm(x=x, weight=weight, eps=1e-5), expected) <= TOLERANCE[dtype]


def test_a_norm_reads_a_strided_slice(ops: Ops, dtype: torch.dtype) -> None:
    heads, weight = randn(5, 8, 16, dtype=dtype), randn(16, dtype=dtype, seed=2)
    expected = EXACT.rms_norm(x=heads[:, 2:5], weight=weight, eps=1e-6)
    assert relative_error(ops.rms_norm(x=heads[:, 2:5], weight=weight, eps=1e-6), expected) <= TOLERANCE[dtype]


@pytest.mark.parametrize("width", [64, 960])
def test_the_sum_that_a_norm_reads_becomes_the_residual(ops: Ops, dtype: torch.dtype, width: int) -> None:
    x, residual, weight = (randn(6, width, dtype=dtype, seed=n) for n in range(3))
    residual, weight = residual.clone(), weight[0]
    normed, total = ops.add_rms_norm(x=x, residual=residual, weight=weight, eps=1e-5)
    expected, expected_total = EXACT.add_rms_norm(x=x, residual=residual, weight=weight, eps=1e-5)
    assert relative_error(total, expected_total) <= TOLERANCE[dtype]
    assert relative_error(normed, expected) <= TOLERANCE[dtype]


@pytest.mark.parametrize("width", [48, 1536])
def test_the_gate_passes_the_upper_half(ops: Ops, dtype: torch.dtype, width: int) -> None:
    gate_up = randn(9, 2 * width, dtype=dtype) * 4
    assert relative_error(ops.silu_mul(gate_up=gate_up), EXACT.silu_mul(gate_up=gate_up)) <= TOLERANCE[dtype]


def test_a_gate_far_from_zero_is_shut_or_open(ops: Ops, dtype: torch.dtype) -> None:
    gate = torch.tensor([-300.0, -90.0, -20.0, 0.0, 20.0, 90.0, 300.0, 1000.0]).repeat(2)
    gate_up = torch.cat((gate, torch.full_like(gate, 2.0)))[None].to(dtype)
    expected = EXACT.silu_mul(gate_up=gate_up)
    assert relative_error(ops.silu_mul(gate_up=gate_up), expected) <= TOLERANCE[dtype]


def test_rows_are_gathered_in_the_order_asked_for(ops: Ops, dtype: torch.dtype) -> None:
    table, rows = randn(50, 2100, dtype=dtype), torch.tensor([49, 0, 7, 7])
    assert torch.equal(ops.gather_rows(table=table, rows=rows), table[rows])


VOCAB = 20001  # not a whole number of anybody's pieces


def test_the_likeliest_token_is_the_first_of_equals(ops: Ops) -> None:
    logits = randn(5, VOCAB, dtype=torch.float32)
    logits[0, [8191, 8192, 20000]] = 50.0
    logits[1, 20000] = 60.0
    logits[2, 0] = 60.0
    logits[3] = -1e30
    logits[4, [77, 19999]] = float("-inf")
    tokens, finite = ops.greedy(logits=logits)
    expected, _ = EXACT.greedy(logits=logits)
    assert tokens.tolist() == expected.tolist()
    assert tokens[:4].tolist() == [8191, 20000, 0, 0]
    assert finite.dtype == torch.bool
    assert finite.tolist() == [True] * 5


def test_a_row_without_a_finite_maximum_says_so_and_no_other_row_does(ops: Ops) -> None:
    logits = randn(4, VOCAB, dtype=torch.float32)
    logits[0, 12345] = float("nan")
    logits[1] = float("-inf")
    logits[3, 20000] = float("inf")
    tokens, finite = ops.greedy(logits=logits)
    assert finite.tolist() == [False, False, True, False]
    assert int(tokens[2]) == int(logits[2].argmax())
