"""The packed extent against the arithmetic it stands for, in float64, read as architecture section 8 describes it."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lorikeet_adapters.digest import write_normalised
from lorikeet_adapters.errors import AdapterRejected
from lorikeet_adapters.header import read_header
from lorikeet_adapters.image import AdapterImage, pack_image
from lorikeet_adapters.manifest import BIAS, DORA, head_grains
from lorikeet_adapters.modules import MODULES
from lorikeet_adapters.validate import Delta, ValidatedAdapter
from tests.support.lora_files import N_LAYERS, TABLE, WIDTHS, safetensors_bytes

ROUNDING = {torch.float32: 2**-23, torch.bfloat16: 2**-8, torch.float16: 2**-10}
KINDS = {"plain": 0, "bias": BIAS, "dora": DORA}
SCALE = 10 / 3


@dataclass(frozen=True)
class Part:
    """One pair to be packed, in float32."""

    layer: int
    module: str
    a: torch.Tensor
    b: torch.Tensor
    vector: torch.Tensor | None
    kind: int
    scale: float = SCALE

    @property
    def name(self) -> str:
        return f"layers.{self.layer}.{self.module}"


class DenseLinears:
    """`BaseLinears` by the formula, in float64; remembers what it was asked."""

    def __init__(self) -> None:
        self.weights = {
            (layer, module): randn(n_out, n_in, seed=100 * layer + index)
            for layer in range(N_LAYERS)
            for index, (module, (n_in, n_out)) in enumerate(WIDTHS.items())
        }
        self.asked: list[tuple[int, str]] = []

    def row_norms(self, layer: int, module: str, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        assert (a.dtype, b.dtype) == (torch.float32, torch.float32)
        self.asked.append((layer, module))
        norms: torch.Tensor = (self.weights[layer, module].double() + b.double() @ a.double()).norm(dim=1)
        return norms.float()


def randn(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def part(layer: int, module: str, rank: int, kind: int, seed: int = 1) -> Part:
    n_in, n_out = WIDTHS[module]
    vector = None
    if kind == BIAS:
        vector = randn(n_out, seed=seed + 2)
    if kind == DORA:
        vector = 30.0 * (1.0 + randn(n_out, seed=seed + 2).abs())
    return Part(layer, module, randn(rank, n_in, seed=seed), randn(n_out, rank, seed=seed + 1), vector, kind)


def normalise(parts: list[Part], folder: Path) -> tuple[str, bytes]:
    content: dict[str, np.ndarray[Any, Any]] = {}
    for one in parts:
        content |= {f"{one.name}.a": one.a.numpy(), f"{one.name}.b": one.b.numpy()}
        if one.vector is not None:
            content[f"{one.name}.v"] = one.vector.numpy()
    path = folder / "weights"
    path.write_bytes(safetensors_bytes(content))
    with path.open("rb") as file:
        entries = {tensor.name: tensor for tensor in read_header(file, path.stat().st_size).tensors}
    deltas = tuple(
        Delta(
            one.layer,
            one.module,
            one.a.shape[0],
            one.scale,
            entries[f"{one.name}.a"],
            entries[f"{one.name}.b"],
            entries.get(f"{one.name}.v"),
            one.kind,
        )
        for one in parts
    )
    out = io.BytesIO()
    adapter = ValidatedAdapter(deltas, N_LAYERS, 1, (), "float32", len(content), (), {})
    digest = write_normalised(adapter, [path], out)
    return digest, out.getvalue()


def pack(
    parts: list[Part], folder: Path, dtype: torch.dtype = torch.float32, base: DenseLinears | None = None
) -> AdapterImage:
    digest, data = normalise(parts, folder)
    return pack_image(data, digest=digest, table=TABLE, dtype=dtype, base=base)


def head_of(image: AdapterImage) -> torch.Tensor:
    n_ints = N_LAYERS * len(MODULES) * 2
    return image.extent.view(torch.int32)[:n_ints].view(N_LAYERS, len(MODULES), 2)


def block_of(image: AdapterImage, layer: int, module: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """A, Bt and the vector."""
    start, word = head_of(image)[layer, MODULES.index(module)].tolist()
    rank, flags = word & 0xFFFF, word >> 16
    n_in, n_out = WIDTHS[module]
    a = 16 * start
    b = a + rank * n_in
    v = b + rank * n_out
    n_bytes = v * image.extent.element_size()
    vector = image.extent.view(torch.uint8)[n_bytes : n_bytes + 4 * n_out].view(torch.float32) if flags else None
    return image.extent[a:b].view(rank, n_in), image.extent[b:v].view(rank, n_out), vector


def close(found: torch.Tensor, expected: torch.Tensor, rounding: float) -> bool:
    size = expected.abs().clamp_min(torch.finfo(found.dtype).smallest_normal)  # below it, steps are equally long
    return bool(((found.double() - expected).abs() <= rounding * size).all())


@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("rank", [1, 3, 16])
def test_a_block_is_the_formula_rounded_once(dtype: torch.dtype, kind: int, rank: int, tmp_path: Path) -> None:
    base = DenseLinears()
    one = part(1, "mlp.up_proj", rank, kind)
    image = pack([one], tmp_path, dtype, base)
    a, bt, vector = block_of(image, 1, "mlp.up_proj")
    assert torch.equal(a, one.a.to(dtype))
    scaled = SCALE * one.b.double()
    if kind == DORA:
        assert one.vector is not None
        assert vector is not None
        weight = base.weights[1, "mlp.up_proj"].double()
        factor = one.vector.double() / (weight + scaled @ one.a.double()).norm(dim=1)
        assert close(bt, (factor[:, None] * scaled).T, ROUNDING[dtype] + 2**-21)
        # The error of g, and of rounding its difference to one.
        assert bool(((vector.double() - (factor - 1)).abs() <= 2**-21 * factor + 2**-24).all())
    else:
        assert close(bt, scaled.T, ROUNDING[dtype])
        assert (vector is None) == (kind == 0)
    if kind == BIAS:
        assert one.vector is not None
        assert vector is not None
        assert close(vector, SCALE * one.vector.double(), ROUNDING[torch.float32])


@pytest.mark.parametrize("kind", [BIAS, DORA], ids=["bias", "dora"])
def test_the_head_says_rank_and_kind_of_every_module_and_nothing_of_others(kind: int, tmp_path: Path) -> None:
    base = DenseLinears()
    parts = [part(0, "self_attn.k_proj", 5, 0), part(0, "mlp.down_proj", 3, kind), part(1, "self_attn.q_proj", 7, kind)]
    image = pack(parts, tmp_path, torch.bfloat16, base)
    words = head_of(image)
    expected = torch.zeros(N_LAYERS, len(MODULES), dtype=torch.int32)
    for one in parts:
        expected[one.layer, MODULES.index(one.module)] = one.a.shape[0] | one.kind << 16
    assert torch.equal(words[..., 1], expected)
    assert torch.equal(words[..., 0] == 0, expected == 0)
    assert base.asked == [(one.layer, one.module) for one in parts if one.kind == DORA]
    assert image.extent.numel() == 16 * image.n_grains
    last = int(words[..., 0].max())
    n_in, n_out = WIDTHS["self_attn.q_proj"]
    assert image.n_grains == last + -(-(2 * 7 * (n_in + n_out) + 4 * n_out) // 32)
    assert last > head_grains(N_LAYERS, 2)


def test_n29_dora_without_the_base_model_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(AdapterRejected) as refusal:
        pack([part(0, "mlp.up_proj", 4, DORA)], tmp_path)
    assert (refusal.value.code, refusal.value.param) == ("feature_unsupported", "use_dora")


def refusal_of(one: Part, folder: Path, dtype: torch.dtype, base: DenseLinears) -> AdapterRejected:
    with pytest.raises(AdapterRejected) as refusal:
        pack([part(0, "mlp.down_proj", 2, 0), one], folder, dtype, base)
    return refusal.value


LARGE = 3e38
OVERFLOWS: Mapping[str, tuple[str, float, torch.dtype]] = {
    "A in bfloat16": ("lora_A", 3.4e38, torch.bfloat16),
    "A in float16": ("lora_A", 7e4, torch.float16),
    "B after its scale": ("lora_B", LARGE, torch.float32),
    "B in float16 after its scale": ("lora_B", 3e4, torch.float16),
    "the vector after its scale": ("vector", LARGE, torch.float32),
    "not a number": ("lora_A", float("nan"), torch.bfloat16),
    "an infinite bias": ("vector", float("inf"), torch.bfloat16),
}


@pytest.mark.parametrize("case", OVERFLOWS)
def test_a16_what_is_not_finite_as_it_is_served_is_refused_by_its_name(case: str, tmp_path: Path) -> None:
    side, value, dtype = OVERFLOWS[case]
    one = part(1, "mlp.up_proj", 4, BIAS)
    assert one.vector is not None
    {"lora_A": one.a, "lora_B": one.b, "vector": one.vector}[side].view(-1)[5] = value
    error = refusal_of(one, tmp_path, dtype, DenseLinears())
    assert error.code == "weight_out_of_range"
    assert error.param == f"layers.1.mlp.up_proj.{'bias' if side == 'vector' else side}"


@pytest.mark.parametrize("magnitude", [1.0, 0.0], ids=["something", "nothing"])
def test_a_row_of_no_length_has_no_direction_and_is_refused(magnitude: float, tmp_path: Path) -> None:
    """PEFT would answer with infinities or NaN."""
    base, one = DenseLinears(), part(1, "mlp.up_proj", 4, DORA)
    base.weights[1, "mlp.up_proj"][5] = 0.0
    one.b[5] = 0.0
    assert one.vector is not None
    one.vector[5] = magnitude
    error = refusal_of(one, tmp_path, torch.float32, base)
    assert (error.code, error.param) == ("weight_out_of_range", "layers.1.mlp.up_proj.magnitude")


def test_a_factor_that_lifts_b_out_of_range_is_refused(tmp_path: Path) -> None:
    one = part(1, "mlp.up_proj", 4, DORA)
    assert one.vector is not None
    one.vector[5] = 1e6
    error = refusal_of(one, tmp_path, torch.float16, DenseLinears())
    assert (error.code, error.param) == ("weight_out_of_range", "layers.1.mlp.up_proj.lora_B")


def test_a_pair_for_another_base_model_is_refused_before_its_weights_are_asked_for(tmp_path: Path) -> None:
    base = DenseLinears()
    wrong = replace(part(0, "mlp.down_proj", 4, DORA), module="mlp.up_proj")
    with pytest.raises(AdapterRejected) as refusal:
        pack([wrong], tmp_path, base=base)
    assert refusal.value.code == "base_model_mismatch"
    assert base.asked == []
