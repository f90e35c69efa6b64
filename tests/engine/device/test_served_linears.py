"""The lengths of rows that DoRA is packed with: those of the weights that the model really multiplies by."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from lorikeet_adapters.modules import MODULES
from lorikeet_engine.certification.compared.streamed import Checkpoint, PlainOps, streamed_weights
from lorikeet_engine.model_spec import load_model_spec
from lorikeet_engine.models import served_linears
from lorikeet_engine.models.served_linears import ServedLinears
from lorikeet_engine.ops.cpu import CpuOps
from lorikeet_engine.ops.interface import Ops
from lorikeet_engine.ops.native.int8 import Int8CpuOps, dequantise, quantise
from lorikeet_engine.ops.native.ops import NativeCpuOps
from lorikeet_engine.ops.reference import ReferenceOps
from tests.support.device import Driven, generate, open_linears, open_runner, random_ids
from tests.support.ops_cases import BACKENDS, NATIVE_LIBRARY
from tests.support.tiny_models import VOCAB

ModelDir = Callable[[str], Path]
BACKENDS_HERE: dict[str, Callable[[], Ops]] = {**BACKENDS, "reference": ReferenceOps}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
RANK = 3
TOLERANCE = 2**-20  # relative, of a length in float32


def randn(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def check_all(linears: ServedLinears, directory: Path, served: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Every module of every layer, each with matrices of its own."""
    tensors = load_file(directory / "model.safetensors")
    for layer in range(load_model_spec(directory).n_layers):
        for index, module in enumerate(MODULES):
            weight = served(tensors[f"model.layers.{layer}.{module}.weight"])
            a, b = randn(RANK, weight.shape[1], seed=index), randn(weight.shape[0], RANK, seed=layer)
            expected = (weight.double() + b.double() @ a.double()).norm(dim=1)
            found = linears.row_norms(layer, module, a, b)
            assert (found.dtype, found.shape) == (torch.float32, expected.shape)
            assert bool(((found - expected).abs() <= TOLERANCE * expected).all()), (layer, module)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("backend", BACKENDS_HERE)
@pytest.mark.parametrize("model", ["llama", "qwen2", "llama_wide_heads"])
def test_every_module_has_the_rows_of_the_checkpoint_as_they_are_served(
    backend: str, dtype: str, model: str, model_dir: ModelDir
) -> None:
    directory, narrow = model_dir(model), DTYPES[dtype]
    check_all(
        open_linears(directory, BACKENDS_HERE[backend](), dtype=narrow), directory, lambda weight: weight.to(narrow)
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_of_8_bit_weights_the_dequantised_ones_count(dtype: str, model_dir: ModelDir) -> None:
    directory, narrow = model_dir("qwen2"), DTYPES[dtype]
    linears = open_linears(directory, Int8CpuOps(NATIVE_LIBRARY, narrow), dtype=narrow, packed_from=torch.float32)
    check_all(linears, directory, lambda weight: dequantise(*quantise(weight)))


@pytest.mark.parametrize("backend", BACKENDS_HERE)
def test_a_weight_larger_than_a_piece_is_read_in_pieces(
    backend: str, model_dir: ModelDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_linears, "PIECE_ELEMENTS", 7 * 64)
    directory = model_dir("llama")
    check_all(open_linears(directory, BACKENDS_HERE[backend]()), directory, lambda weight: weight)


def test_what_can_only_be_unpacked_whole_is_unpacked_once_for_a_module(
    model_dir: ModelDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_linears, "PIECE_ELEMENTS", 7 * 64)
    unpack, unpacked = torch.Tensor.to_dense, list[torch.Tensor]()

    def count(weight: torch.Tensor) -> torch.Tensor:
        unpacked.append(weight)
        return unpack(weight)

    monkeypatch.setattr(torch.Tensor, "to_dense", count)
    directory = model_dir("llama")
    check_all(open_linears(directory, CpuOps()), directory, lambda weight: weight)
    n_modules = load_model_spec(directory).n_layers * len(MODULES)
    assert len(unpacked) == (n_modules if torch._C._has_mkldnn else 0)


def test_of_weights_in_a_file_each_row_is_read_once_and_no_other_modules(
    model_dir: ModelDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_linears, "PIECE_ELEMENTS", 7 * 64)
    directory, ops = model_dir("llama"), PlainOps()
    spec, checkpoint = load_model_spec(directory), Checkpoint(directory)
    linears = ServedLinears(
        ops=ops, weights=streamed_weights(checkpoint, spec, ops), table=spec.module_table("a base model")
    )
    read, n_read = Checkpoint.read_rows, Counter[str]()

    def count(self: Checkpoint, name: str, first: int, end: int) -> torch.Tensor:
        n_read[name] += end - first
        return read(self, name, first, end)

    monkeypatch.setattr(Checkpoint, "read_rows", count)
    check_all(linears, directory, lambda weight: weight)
    names = [f"model.layers.{layer}.{module}.weight" for layer in range(spec.n_layers) for module in MODULES]
    assert n_read == {name: checkpoint.shape(name)[0] for name in names}


def test_rows_that_nearly_vanish_keep_their_digits(model_dir: ModelDir) -> None:
    """|W|^2 + 2 b (A W) + ... would lose them: that is why the rows themselves are added up."""
    directory = model_dir("llama")
    linears = open_linears(directory, NativeCpuOps(NATIVE_LIBRARY))
    weight = load_file(directory / "model.safetensors")["model.layers.1.self_attn.k_proj.weight"]
    left, values, right = torch.linalg.svd(weight.double(), full_matrices=False)
    a, b = right.float(), (-0.9999 * left * values).float()
    expected = (weight.double() + b.double() @ a.double()).norm(dim=1)
    assert float((expected / weight.norm(dim=1)).max()) < 2e-4
    found = linears.row_norms(1, "self_attn.k_proj", a, b)
    assert bool(((found - expected).abs() <= 1e-6 * weight.norm(dim=1)).all())


@pytest.mark.parametrize("backend", ["cpu", "native"])
def test_a_loader_that_asks_beside_the_steps_changes_neither(backend: str, model_dir: ModelDir) -> None:
    """Native ops gather a step's calls and share its memory; one that joined them would end up in another's step."""
    directory = model_dir("qwen2")
    ops = BACKENDS[backend]()
    runner, linears = open_runner(directory, ops=ops), open_linears(directory, ops)

    def answer() -> dict[str, list[int]]:
        driven = [
            Driven(f"r{n}", random_ids(9 + n, vocab=VOCAB, seed=n), tuple(range(1 + 8 * n, 9 + 8 * n)))
            for n in range(4)
        ]
        return generate(runner, driven, 30)

    alone, ended = answer(), threading.Event()
    failures: list[str] = []
    threads = [threading.Thread(target=partial(_ask, linears, directory, ended, failures)) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            assert answer() == alone
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert not failures


def _ask(linears: ServedLinears, directory: Path, ended: threading.Event, failures: list[str]) -> None:
    while not ended.is_set():
        try:
            check_all(linears, directory, lambda weight: weight)
        except AssertionError as error:
            failures.append(str(error))
            return
