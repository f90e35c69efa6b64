"""An adapter's identity is what it computes: the same under every spelling, another for any changed number."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch

from lorikeet_adapters.digest import read_normalised_file
from lorikeet_adapters.errors import AdapterImageDamaged, AdapterRejected
from lorikeet_adapters.image import pack_image
from lorikeet_adapters.manifest import BIAS, DORA
from lorikeet_adapters.modules import Linear, ModuleTable
from tests.support.lora_files import (
    TABLE,
    normalise_folder,
    safetensors_bytes,
    tensor_name,
    tensors,
    vector_name,
    write_files,
    write_shards,
)

PREFIXES = [
    "base_model.model.model.",
    "base_model.model.",
    "model.",
    "base_model.model.language_model.model.",
    "base_model.model.model.language_model.",
    "",
    "language_model.model.",
    "model.language_model.",
]


def normalise(folder: Path, content: Any = None, **changes: Any) -> tuple[str, bytes]:
    write_files(folder, content, **changes)
    _, digest, data = normalise_folder(folder)
    return digest, data


@pytest.mark.parametrize("adapter", ["", ".default"])
@pytest.mark.parametrize("prefix", PREFIXES)
def test_the_digest_is_the_same_under_every_spelling_of_the_names(prefix: str, adapter: str, tmp_path: Path) -> None:
    plain = normalise(tmp_path / "plain", tensors())
    spelled = normalise(tmp_path / "spelled", tensors(prefix=prefix, adapter=adapter))
    assert spelled == plain


@pytest.mark.parametrize("kind", ["lora_bias", "use_dora"])
@pytest.mark.parametrize("adapter", ["", ".default"])
@pytest.mark.parametrize("prefix", PREFIXES[:3])
def test_the_digest_covers_a_vector_under_every_spelling(kind: str, prefix: str, adapter: str, tmp_path: Path) -> None:
    flag = {kind: True}
    plain = normalise(tmp_path / "plain", tensors(vectors=kind), **flag)
    assert normalise(tmp_path / "spelled", tensors(prefix=prefix, adapter=adapter, vectors=kind), **flag) == plain
    content = tensors(vectors=kind)
    content[vector_name(1, "self_attn.v_proj", kind)][3] += 1
    assert normalise(tmp_path / "changed", content, **flag)[0] != plain[0]
    assert normalise(tmp_path / "without", tensors())[0] != plain[0]


def test_a_magnitude_means_the_same_with_and_without_the_word_weight(tmp_path: Path) -> None:
    content = tensors(vectors="use_dora")
    spelled = {f"{name}.weight" if "magnitude" in name else name: array for name, array in content.items()}
    assert normalise(tmp_path / "a", content, use_dora=True) == normalise(tmp_path / "b", spelled, use_dora=True)


def test_a_bias_and_a_magnitude_of_the_same_numbers_are_two_adapters(tmp_path: Path) -> None:
    magnitudes = tensors(vectors="use_dora")
    biases = {name.replace("lora_magnitude_vector", "lora_B.bias"): array for name, array in magnitudes.items()}
    dora = normalise(tmp_path / "dora", magnitudes, use_dora=True)
    bias = normalise(tmp_path / "bias", biases, lora_bias=True)
    assert dora[0] != bias[0]
    for (digest, data), kind in ((dora, DORA), (bias, BIAS)):
        deltas = read_normalised_file(data, digest).deltas
        assert [delta.kind for delta in deltas] == [kind] * 4
        for delta in deltas:
            assert delta.vector is not None
            original = magnitudes[vector_name(delta.layer, delta.module, "use_dora")]
            assert data[delta.vector.begin : delta.vector.end] == original.tobytes()
            assert delta.block.has_vector


def test_the_digest_does_not_say_how_the_tensors_were_spread_over_files(tmp_path: Path) -> None:
    content = tensors(vectors="lora_bias")
    plain = normalise(tmp_path / "plain", content, lora_bias=True)
    names = sorted(content, reverse=True)
    for n_shards in (1, 2, 5):
        shards = [{name: content[name] for name in names[number::n_shards]} for number in range(n_shards)]
        _, digest, data = normalise_folder(write_shards(tmp_path / str(n_shards), shards, lora_bias=True))
        assert (digest, data) == plain


def test_order_metadata_and_other_ways_to_say_the_same_scale_leave_the_digest_alone(tmp_path: Path) -> None:
    plain, _ = normalise(tmp_path / "plain")
    backwards = safetensors_bytes(dict(reversed(tensors().items())), metadata={"format": "pt"})
    assert normalise(tmp_path / "a", backwards)[0] == plain
    assert normalise(tmp_path / "b", use_rslora=True, lora_alpha=4)[0] == plain
    assert normalise(tmp_path / "c", lora_alpha=16, alpha_pattern={"self_attn.q_proj": 8, "v_proj": 8.0})[0] == plain


def test_any_changed_weight_or_scale_changes_the_digest(tmp_path: Path) -> None:
    digests = {normalise(tmp_path / "plain")[0]}
    for number, name in enumerate(tensors()):
        content = tensors()
        content[name][0, 0] = np.nextafter(content[name][0, 0], np.float32(9))
        digests.add(normalise(tmp_path / str(number), content)[0])
    scales: list[dict[str, Any]] = [
        {"lora_alpha": 8.000001},
        {"use_rslora": True},
        {"alpha_pattern": {"layers.1.self_attn.v_proj": 9}},
    ]
    for number, changes in enumerate(scales):
        digests.add(normalise(tmp_path / f"scale-{number}", **changes)[0])
    digests.add(normalise(tmp_path / "fewer", tensors(layers=(0,)))[0])
    assert len(digests) == 1 + 8 + 3 + 1


def test_the_normalised_file_is_an_ordinary_safetensors_file(tmp_path: Path) -> None:
    digest, data = normalise(tmp_path, use_rslora=True)
    assert hashlib.sha256(data).hexdigest() == digest
    content = safetensors.numpy.load(data)
    assert content["scales"].tolist() == [8 / 2.0] * 4
    original = tensors()
    for layer in (0, 1):
        for module in ("self_attn.q_proj", "self_attn.v_proj"):
            for side in "AB":
                ours = content[f"layers.{layer}.{module}.lora_{side}"]
                assert np.array_equal(ours, original[tensor_name(layer, module, side)])


def test_a_file_with_one_flipped_bit_is_damaged(tmp_path: Path) -> None:
    digest, data = normalise(tmp_path)
    for position in (0, 20, len(data) // 2, len(data) - 1):
        flipped = bytearray(data)
        flipped[position] ^= 1
        with pytest.raises(AdapterImageDamaged):
            pack_image(bytes(flipped), digest=digest, table=TABLE, dtype=torch.float32)


def test_a_file_that_is_not_of_our_writing_is_damaged_even_under_its_own_digest(tmp_path: Path) -> None:
    _, data = normalise(tmp_path)
    for other in (
        safetensors_bytes(tensors()),
        safetensors_bytes(tensors(), metadata={"format": "lorikeet-adapter-1"}),
        data.replace(b"lora_A", b"lora_B").replace(b"lora_B", b"lora_A", 1),
        data.replace(b"self_attn.q_proj", b"self_attn.x_proj"),
        data.replace(b"layers.1.self_attn.q_proj", b"layers.0.self_attn.v_proj"),
        data[:-4],
        b"",
    ):
        with pytest.raises(AdapterImageDamaged):
            read_normalised_file(other, hashlib.sha256(other).hexdigest())


def test_an_image_for_another_base_model_is_refused(tmp_path: Path) -> None:
    digest, data = normalise(tmp_path)
    for other in (
        ModuleTable("one layer", 1, TABLE.linears),
        ModuleTable("wider", 2, {**TABLE.linears, "self_attn.q_proj": Linear(64, 32)}),
    ):
        with pytest.raises(AdapterRejected) as caught:
            pack_image(data, digest=digest, table=other, dtype=torch.float32)
        assert caught.value.code == "base_model_mismatch"


def test_a_scale_that_overflows_the_dtype_is_refused_when_packing(tmp_path: Path) -> None:
    content = tensors()
    for array in content.values():
        array *= 1e-3
    digest, data = normalise(tmp_path, content)
    huge = data.replace(np.float64(2.0).tobytes() * 4, np.float64(1e9).tobytes() * 4)
    digest = hashlib.sha256(huge).hexdigest()
    assert pack_image(huge, digest=digest, table=TABLE, dtype=torch.bfloat16).rank_max == 4
    with pytest.raises(AdapterRejected) as caught:
        pack_image(huge, digest=digest, table=TABLE, dtype=torch.float16)
    assert caught.value.code == "weight_out_of_range"
