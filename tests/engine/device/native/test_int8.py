"""8-bit weights: the rounding, the product, and a model that is served with them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Literal

import pytest
import torch

from lorikeet_adapters.manifest import GRAIN
from lorikeet_engine import build
from lorikeet_engine.build import build_engine, choose_ops
from lorikeet_engine.config import EngineConfig
from lorikeet_engine.cost import ModelCost
from lorikeet_engine.errors import UnsupportedModel
from lorikeet_engine.model_spec import load_model_spec
from lorikeet_engine.models.weights import load_weights
from lorikeet_engine.ops.interface import Ops, PackedLinear
from lorikeet_engine.ops.native.int8 import Int8CpuOps, dequantise, quantise
from lorikeet_engine.ops.reference import ReferenceOps
from tests.engine.equality.bench import Workbench, make_request, run
from tests.engine.equality.prompts import BASE
from tests.support.closeness import TOLERANCE, relative_error
from tests.support.device import Driven, generate, open_linears, open_runner, plan_of, random_ids
from tests.support.ops_cases import NATIVE_LIBRARY
from tests.support.tiny_models import VOCAB, pack_adapter, save_adapter

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
EOS = 2
ModelDir = Callable[[str], Path]


class DequantisedOps(ReferenceOps):
    """The reference with the weights that 8-bit linears multiply by."""

    def pack_linear(self, *, weight: torch.Tensor, bias: torch.Tensor | None) -> PackedLinear:
        return super().pack_linear(weight=dequantise(*quantise(weight)).to(weight.dtype), bias=bias)


def int8_ops(dtype: torch.dtype) -> Int8CpuOps:
    return Int8CpuOps(NATIVE_LIBRARY, dtype)


def randn(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_no_weight_is_off_by_more_than_half_a_step(dtype: torch.dtype) -> None:
    weight = (randn(1030, 48, seed=1) * 10.0 ** torch.arange(-4, 1).repeat(206)[:, None]).to(dtype)
    weight[3] = 0.0
    weight[4, 1:] = 0.0
    integers, scale = quantise(weight)
    exact, step = weight.double(), scale.double()[:, None]
    rounded = 1 + 2**-15  # the quotient is a float32: near 127 steps it is off by 2^-17 of a step itself
    assert bool(((exact - integers * step).abs() <= step / 2 * rounded).all())
    assert bool((integers.int().abs().amax(1) == 127)[exact.abs().amax(1) > 0].all())
    assert torch.equal(dequantise(integers, scale)[3], torch.zeros(48))
    assert dequantise(integers, scale)[4, 0].item() == pytest.approx(weight[4, 0].item(), rel=1e-6)


def test_weights_that_are_not_finite_are_refused() -> None:
    weight = randn(16, 16, seed=1)
    for value in (float("inf"), float("nan")):
        weight[3, 4] = value
        with pytest.raises(ValueError, match="quantization int8: a weight is not finite"):
            quantise(weight)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
@pytest.mark.parametrize("shape", [(16, 16), (48, 32), (64, 48), (80, 96), (96, 16), (144, 208), (100, 32)], ids=str)
@pytest.mark.parametrize("with_bias", [False, True])
def test_a_product_is_that_of_the_dequantised_weights(
    dtype: torch.dtype, shape: tuple[int, int], with_bias: bool
) -> None:
    weight, x = randn(*shape, seed=2), randn(70, shape[1], seed=3).to(dtype)
    bias = randn(shape[0], seed=4).to(dtype) if with_bias else None
    ops = int8_ops(dtype)
    packed = ops.pack_linear(weight=weight, bias=bias)
    integers, scale = quantise(weight)
    exact = x.double() @ (integers.double() * scale.double()[:, None]).T
    exact += bias.double() if bias is not None else 0.0
    together = ops.linear(x=x, linear=packed)
    assert relative_error(together, exact) <= TOLERANCE[dtype]
    for n_rows in (*range(1, 18), 63, 64, 65):
        assert torch.equal(ops.linear(x=x[:n_rows], linear=packed), together[:n_rows])


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_a_packed_weight_is_read_back_as_it_is_multiplied_by(dtype: torch.dtype) -> None:
    weight, ops = randn(208, 32, seed=1), int8_ops(dtype)
    packed = ops.pack_linear(weight=weight, bias=None)
    expected = dequantise(*quantise(weight))
    for first, end in ((0, 208), (3, 50), (190, 208)):
        for n_rows in (7, 208):
            pieces = list(ops.unpack_linear(linear=packed, first=first, end=end, n_rows=n_rows))
            assert max(map(len, pieces)) <= n_rows
            assert torch.equal(torch.cat(pieces), expected[first:end])


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_a_cpu_without_wide_vectors_multiplies_the_same(dtype: torch.dtype, portable_library: ctypes.CDLL) -> None:
    weight, x = randn(80, 48, seed=5), randn(11, 48, seed=6).to(dtype)
    results = [
        ops.linear(x=x, linear=ops.pack_linear(weight=weight, bias=None))
        for ops in (int8_ops(dtype), Int8CpuOps(portable_library, dtype))
    ]
    assert relative_error(results[1], results[0]) <= TOLERANCE[dtype]


def test_rows_of_another_dtype_are_refused() -> None:
    ops = int8_ops(torch.bfloat16)
    packed = ops.pack_linear(weight=randn(16, 16, seed=1), bias=None)
    with pytest.raises(ValueError, match=r"packed for torch\.bfloat16, not for torch\.float32"):
        ops.linear(x=randn(1, 16, seed=2), linear=packed)


@pytest.mark.parametrize("dtype", DTYPES)
def test_integers_come_from_the_checkpoints_own_numbers_and_the_embedding_stays(
    model_dir: ModelDir, dtype: str
) -> None:
    """Rounding to bfloat16 first would double the error; a tied head has integers of its own."""
    directory, narrow = model_dir("llama_tied_biased"), DTYPES[dtype]
    spec = load_model_spec(directory)
    plain = load_weights(directory, spec, dtype=torch.float32, ops=ReferenceOps())
    ops = int8_ops(narrow)
    weights = load_weights(directory, spec, dtype=narrow, ops=ops, packed_from=torch.float32)
    for packed, original in ((weights.layers[1].down, plain.layers[1].down), (weights.head, plain.head)):
        expected = ops.pack_linear(weight=original.weight, bias=None)
        assert torch.equal(packed.weight, expected.weight)
    assert torch.equal(weights.embedding, plain.embedding.to(narrow))
    bias = weights.layers[1].down.bias
    assert bias is not None
    assert bias.dtype == narrow


def test_the_memory_table_counts_integers_scales_and_what_stays(model_dir: ModelDir) -> None:
    directory = model_dir("llama_tied_biased")
    spec = load_model_spec(directory)
    wide, narrow = (
        load_weights(directory, spec, dtype=torch.bfloat16, ops=ops)
        for ops in (ReferenceOps(), int8_ops(torch.bfloat16))
    )
    cost, int8_cost = ModelCost.of(spec), ModelCost.of(spec, int8_weights=True)
    # The embedding, norms and biases stay; the tied head is counted by itself.
    assert wide.nbytes - narrow.nbytes == cost.weights_bytes - int8_cost.weights_bytes
    n_outputs = spec.vocab + spec.n_layers * (128 + 2 * spec.hidden + 2 * spec.intermediate)
    assert int8_cost.weights_bytes == cost.layer_params + cost.head_params + 4 * n_outputs


@pytest.mark.parametrize("name", ["llama_tied_biased", "qwen2", "qwen3", "mistral_window"])
def test_answers_are_those_of_the_dequantised_weights(model_dir: ModelDir, name: str) -> None:
    answers = []
    for ops in (int8_ops(torch.float32), DequantisedOps()):
        runner = open_runner(model_dir(name), ops=ops)
        prompts = [random_ids(n, vocab=VOCAB, seed=n) for n in (3, 9, 21)]
        rows = [Driven(f"r{i}", tokens, tuple(range(1 + 8 * i, 9 + 8 * i))) for i, tokens in enumerate(prompts)]
        answers.append(generate(runner, rows, 24))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("option", ["lora_bias", "use_dora", ""])
def test_an_adapter_is_added_exactly_to_integer_weights(model_dir: ModelDir, tmp_path: Path, option: str) -> None:
    """DoRA is packed with the lengths of the rows that are served: the dequantised ones."""
    directory, options = model_dir("qwen2"), {option: True} if option else {}
    adapter = save_adapter(directory, tmp_path, seed=3, r=8, lora_alpha=16, target_modules="all-linear", **options)
    logits: list[torch.Tensor] = []
    for ops in (int8_ops(torch.float32), DequantisedOps()):
        runner, linears = open_runner(directory, ops=ops), open_linears(directory, ops)
        image = pack_adapter(adapter, runner.spec.module_table("tiny"), torch.float32, linears)
        runner.write_extent(3, image)
        for extent in (3, -1):
            row = Driven("r", random_ids(12, vocab=VOCAB, seed=1), (1, 2), extent=extent).row()
            logits.append(runner.logits(plan_of([row])).clone())
    assert image.extent.numel() % GRAIN == 0
    adapted, plain, expected, expected_plain = logits
    assert relative_error(adapted - plain, expected - expected_plain) < 1e-4
    assert relative_error(adapted, expected) < 1e-5
    assert relative_error(adapted, plain) > 0.1


def config_of(directory: Path, quantization: Literal["none", "int8"]) -> EngineConfig:
    return EngineConfig(
        model_dir=directory,
        model_name="tiny",
        store_url=str(directory),
        endpoint="ipc:///nowhere",
        dtype="float32",
        quantization=quantization,
        kv_cache_bytes=1 << 22,
        adapter_pool_bytes=1 << 20,
    )


def test_an_engine_answers_with_integer_weights_where_they_are_asked_for(model_dir: ModelDir) -> None:
    directory, prompt = model_dir("llama"), random_ids(9, vocab=VOCAB, seed=1)
    config = config_of(directory, "int8")
    with closing(build_engine(config)) as engine:
        bench = Workbench(engine, {}, config)
        answers = run(bench, [[make_request(bench, BASE, 0, prompt, 20)]], steps_between=0)
        assert engine.budget.weights_bytes < 0.5 * engine_bytes(directory)
    row = Driven("r", prompt, (1, 2, 3, 4))
    expected = generate(open_runner(directory, ops=DequantisedOps()), [row], 20)["r"]
    (answer,) = answers.values()
    assert answer == expected[: len(answer)]
    assert len(answer) == 20 or answer[-1] == EOS


def engine_bytes(directory: Path) -> int:
    with closing(build_engine(config_of(directory, "none"))) as engine:
        return engine.budget.weights_bytes


def test_a_model_that_was_loaded_otherwise_is_refused(model_dir: ModelDir) -> None:
    directory = model_dir("llama")
    model = build.load_model(directory, "float32")
    with pytest.raises(ValueError, match="quantization: 'int8', but the model was loaded with 'none'"):
        build_engine(config_of(directory, "int8"), model)


def test_a_gpu_refuses_integer_weights_by_name(model_dir: ModelDir) -> None:
    with pytest.raises(UnsupportedModel, match=r"quantization int8: .*not on cuda"):
        build.load_model(model_dir("llama"), "float32", "int8", "cuda")


def test_without_a_compiler_integer_weights_are_refused_by_name(
    model_dir: ModelDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(model_dir("llama")))
    with pytest.raises(UnsupportedModel, match=r"quantization int8: .*C\+\+ compiler"):
        build_engine(config_of(model_dir("llama"), "int8"))


def test_widths_that_the_kernels_do_not_know_are_refused_by_name(
    model_dir: ModelDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "covers", lambda *_: False)
    spec = load_model_spec(model_dir("llama"))
    with pytest.raises(UnsupportedModel, match=r"quantization int8: .*multiples of 16"):
        choose_ops(spec, torch.float32, "int8")
    plain: Ops = choose_ops(spec, torch.float32, "none")
    assert type(plain).__name__ == "CpuOps"
