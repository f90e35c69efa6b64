"""Reading checkpoints: what is read, and what is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from lorikeet_engine.errors import UnsupportedModel
from lorikeet_engine.model_spec import load_model_spec
from lorikeet_engine.models.weights import Weights, load_weights
from lorikeet_engine.ops.reference import ReferenceOps
from tests.support.tiny_models import save_model

ModelDir = Callable[[str], Path]
Q0 = "model.layers.0.self_attn.q_proj.weight"


def read(directory: Path, dtype: torch.dtype = torch.float32) -> Weights:
    return load_weights(directory, load_model_spec(directory), dtype=dtype, ops=ReferenceOps())


@pytest.fixture
def copy(model_dir: ModelDir, tmp_path: Path) -> Callable[[str], tuple[Path, dict[str, torch.Tensor]]]:
    """A model directory without weights, and the weights to write into it."""

    def make(name: str) -> tuple[Path, dict[str, torch.Tensor]]:
        source = model_dir(name)
        (tmp_path / "config.json").write_bytes((source / "config.json").read_bytes())
        return tmp_path, load_file(source / "model.safetensors")

    return make


def write(directory: Path, tensors: dict[str, torch.Tensor]) -> None:
    save_file(tensors, directory / "model.safetensors")


def test_slices_of_a_fused_linear_lie_in_module_order(model_dir: ModelDir) -> None:
    weights, tensors = read(model_dir("qwen2")), load_file(model_dir("qwen2") / "model.safetensors")
    prefix = "model.layers.1.self_attn."
    expected = torch.cat([tensors[f"{prefix}{name}_proj.weight"] for name in "qkv"])
    assert torch.equal(weights.layers[1].qkv.weight, expected)
    bias = weights.layers[1].qkv.bias
    assert bias is not None
    assert torch.equal(bias, torch.cat([tensors[f"{prefix}{name}_proj.bias"] for name in "qkv"]))
    assert weights.layers[1].o.bias is None


def test_shards_give_what_one_file_gives(model_dir: ModelDir, tmp_path: Path) -> None:
    sharded = save_model("llama", tmp_path, max_shard_size="50KB")
    assert len(list(sharded.glob("*.safetensors"))) > 2
    one, many = read(model_dir("llama")), read(sharded)
    assert torch.equal(one.embedding, many.embedding)
    for a, b in zip(one.layers, many.layers, strict=True):
        assert torch.equal(a.gate_up.weight, b.gate_up.weight)


def test_weights_are_converted_and_counted(model_dir: ModelDir) -> None:
    wide, narrow = read(model_dir("llama_tied_biased")), read(model_dir("llama_tied_biased"), torch.bfloat16)
    assert narrow.dtype == torch.bfloat16
    assert torch.equal(narrow.layers[0].down.weight, wide.layers[0].down.weight.bfloat16())
    assert wide.nbytes == 2 * narrow.nbytes
    n_parameters = sum(tensor.numel() for tensor in load_file(model_dir("llama") / "model.safetensors").values())
    assert read(model_dir("llama")).nbytes == 4 * n_parameters


def test_a_missing_tensor_is_named(copy: Callable[[str], tuple[Path, dict[str, torch.Tensor]]]) -> None:
    directory, tensors = copy("llama")
    del tensors[Q0]
    write(directory, tensors)
    with pytest.raises(UnsupportedModel, match=f"missing.*{Q0}"):
        read(directory)


def test_a_tensor_nobody_knows_is_named(copy: Callable[[str], tuple[Path, dict[str, torch.Tensor]]]) -> None:
    directory, tensors = copy("llama")
    write(directory, {**tensors, "model.layers.0.self_attn.q_proj.bias": torch.zeros(64)})
    with pytest.raises(
        UnsupportedModel, match=r"not known to LlamaForCausalLM: model\.layers\.0\.self_attn\.q_proj\.bias"
    ):
        read(directory)


def test_many_refused_tensors_are_counted(copy: Callable[[str], tuple[Path, dict[str, torch.Tensor]]]) -> None:
    directory, tensors = copy("llama")
    write(directory, {name: tensor for name, tensor in tensors.items() if ".layers." not in name})
    with pytest.raises(UnsupportedModel, match="and 13 more"):
        read(directory)


def test_what_the_configuration_already_says_may_be_there(
    copy: Callable[[str], tuple[Path, dict[str, torch.Tensor]]],
) -> None:
    directory, tensors = copy("llama_tied_biased")
    head = tensors["model.embed_tokens.weight"].clone()
    write(
        directory, {**tensors, "lm_head.weight": head, "model.layers.0.self_attn.rotary_emb.inv_freq": head[0].clone()}
    )
    assert torch.equal(read(directory).head.weight, head)


def test_a_tensor_of_another_shape_is_named(copy: Callable[[str], tuple[Path, dict[str, torch.Tensor]]]) -> None:
    directory, tensors = copy("llama")
    write(directory, {**tensors, Q0: tensors[Q0][:32].clone()})
    with pytest.raises(UnsupportedModel, match=rf"{Q0} has shape \[32, 64\], config.json says \[64, 64\]"):
        read(directory)


def test_integer_weights_are_refused(copy: Callable[[str], tuple[Path, dict[str, torch.Tensor]]]) -> None:
    directory, tensors = copy("llama")
    write(directory, {**tensors, Q0: tensors[Q0].to(torch.int8)})
    with pytest.raises(UnsupportedModel, match=r"torch\.int8"):
        read(directory)


def test_a_damaged_or_absent_file_is_refused(copy: Callable[[str], tuple[Path, dict[str, torch.Tensor]]]) -> None:
    directory, _ = copy("llama")
    with pytest.raises(UnsupportedModel, match=r"neither model\.safetensors nor"):
        read(directory)
    (directory / "model.safetensors").write_bytes(b"\x10" + bytes(30))
    with pytest.raises(UnsupportedModel, match="cannot be read"):
        read(directory)


def test_an_index_cannot_name_files_elsewhere(copy: Callable[[str], tuple[Path, dict[str, torch.Tensor]]]) -> None:
    directory, _ = copy("llama")
    index = {"weight_map": {Q0: "../elsewhere.safetensors"}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UnsupportedModel, match="is not a file name beside it"):
        read(directory)
