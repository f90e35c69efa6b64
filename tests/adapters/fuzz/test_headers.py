"""200,000 damaged safetensors files: no crash, and where we read one, the library and PEFT read the same."""

from __future__ import annotations

import io
import json
import struct
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import safetensors
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model, set_peft_model_state_dict
from transformers import LlamaForCausalLM

from lorikeet_adapters.config.settings import read_config
from lorikeet_adapters.errors import AdapterRejected
from lorikeet_adapters.header import WEIGHT_WIDTHS, TensorEntry, read_header
from lorikeet_adapters.rules.pairs import find_pairs
from tests.adapters.fuzz.mutator import JUNK, Mutator
from tests.support.lora_files import CONFIG, TABLE, safetensors_bytes, tensors, with_header

SEED = 20_261
N_FILES = 200_000
NAMES = ("__metadata__", "dtype", "shape", "data_offsets", "F16", "BF16", "F32", "F64", "I8", "format", "pt")
LIBRARY_DTYPES = {"F16": "F16", "BF16": "BF16", "F32": "F32"}


def sound_files() -> list[bytes]:
    small = {"a": np.zeros((2, 4), np.float32), "b": np.ones((4, 2), np.float32)}
    half = {name: array.astype(np.float16) for name, array in tensors(layers=(0,), rank=2).items()}
    return [
        safetensors_bytes(small),
        safetensors_bytes(small, metadata={"format": "pt", "note": "x"}),
        safetensors_bytes({"v": np.ones(8, np.uint16), "w": np.ones((1, 8), np.uint16)}),
        safetensors_bytes(half),
        safetensors_bytes(tensors(layers=(0,), modules=("self_attn.q_proj",))),
        safetensors_bytes(tensors(layers=(0,), modules=("self_attn.v_proj",), vectors="lora_bias")),
        safetensors_bytes(tensors(layers=(0,), modules=("self_attn.v_proj",), vectors="use_dora")),
    ]


def damaged_files(n_files: int, seed: int) -> Iterator[bytes]:
    """Half of the files with damage to their bytes, half with damage to what the header says."""
    mutator = Mutator(seed)
    rng = mutator.random
    sound = sound_files()
    parts = []
    for data in sound:
        (length,) = struct.unpack_from("<Q", data)
        parts.append((data, json.loads(data[8 : 8 + length]), data[8 + length :]))
    for _ in range(n_files):
        data, header, body = rng.choice(parts)
        if rng.random() < 0.5:
            # Damage to the weights tells nothing: the header and its surroundings are what is read.
            end = len(data) - len(body) + 16
            yield mutator.bytes_of(data[:end], sound) + data[end:]
            continue
        changed = mutator.json_of(header, (*JUNK, *NAMES))
        if rng.random() < 0.3:
            body = body[: -rng.randrange(1, 9)] if rng.random() < 0.5 else body + bytes(rng.randrange(1, 9))
        yield with_header(json.dumps(changed).encode(), body)


def read(data: bytes) -> tuple[TensorEntry, ...] | None:
    try:
        return read_header(io.BytesIO(data), len(data)).tensors
    except AdapterRejected as error:
        error.message.encode("ascii")
        return None


def assert_library_agrees(data: bytes, ours: tuple[TensorEntry, ...]) -> None:
    theirs = dict(safetensors.deserialize(data))  # type: ignore[no-untyped-call]
    assert theirs.keys() == {tensor.name for tensor in ours}
    for tensor in ours:
        their = theirs[tensor.name]
        assert (tuple(their["shape"]), their["dtype"]) == (tensor.shape, LIBRARY_DTYPES[tensor.dtype])
        assert bytes(their["data"]) == data[tensor.begin : tensor.end]


class Peft:
    """A PEFT model of each kind, that takes the tensors of a file or not."""

    def __init__(self, model: LlamaForCausalLM) -> None:
        self.settings = {}
        self.models = {}
        self._known: dict[frozenset[Any], bool] = {}
        for kind in ("", "lora_bias", "use_dora"):
            fields = {**CONFIG, "target_modules": ["q_proj", "v_proj"], **({kind: True} if kind else {})}
            self.settings[kind] = read_config(json.dumps(fields).encode())
            self.models[kind] = get_peft_model(LlamaForCausalLM(model.config), LoraConfig(**fields))

    def check(self, ours: tuple[TensorEntry, ...]) -> bool:
        """Whether our rules take the file for an adapter; PEFT then takes every tensor of it."""
        key = frozenset((tensor.name, tensor.shape) for tensor in ours)
        if key not in self._known:
            self._known[key] = self._check(ours)
        return self._known[key]

    def _check(self, ours: tuple[TensorEntry, ...]) -> bool:
        taken = False
        for kind, model in self.models.items():
            try:
                find_pairs(self.settings[kind], ours, TABLE, 64)
            except AdapterRejected:
                continue
            state = {tensor.name: torch.zeros(tensor.shape) for tensor in ours}
            result = set_peft_model_state_dict(model, state)
            if all(name.startswith("base_model.model.model.") and ".default." not in name for name in state):
                assert result.unexpected_keys == [], result.unexpected_keys
            taken = True
        return taken


@pytest.mark.slow
def test_damaged_files_crash_nothing_and_mean_the_same_to_everybody(tiny_llama: LlamaForCausalLM) -> None:
    peft = Peft(tiny_llama)
    seen: Counter[str] = Counter()
    for data in damaged_files(N_FILES, SEED):
        ours = read(data)
        seen["files"] += 1
        if ours is None:
            continue
        seen["accepted"] += 1
        assert_library_agrees(data, ours)
        if any(".lora_" in tensor.name for tensor in ours):
            seen["adapters"] += peft.check(ours)
    assert seen["files"] == N_FILES
    # Damage that damages nothing must occur, or the comparison with the library would be empty.
    assert seen["accepted"] > N_FILES // 50, seen
    assert seen["adapters"] > 100, seen


SHAPES = st.lists(st.integers(1, 6), min_size=1, max_size=2)
CONTENTS = st.dictionaries(
    st.text(st.characters(codec="utf-8", exclude_characters=",[{"), max_size=12).filter("__metadata__".__ne__),
    st.tuples(st.sampled_from(sorted(WEIGHT_WIDTHS)), SHAPES),
    min_size=2,
    max_size=6,
)
METADATA = st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=8), st.text(st.characters(codec="utf-8")))


@given(CONTENTS, METADATA, st.randoms(use_true_random=False), st.integers(0, 64))
@settings(max_examples=500, deadline=None)
def test_every_sound_file_is_read_as_the_library_reads_it(
    content: dict[str, Any], metadata: dict[str, str], order: Any, padding: int
) -> None:
    entries: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    position = 0
    for name, (dtype, shape) in content.items():
        end = position + int(np.prod(shape)) * WEIGHT_WIDTHS[dtype]
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [position, end]}
        position = end
    names = list(entries)
    order.shuffle(names)
    header = json.dumps({name: entries[name] for name in names}).encode() + b" " * padding
    data = struct.pack("<Q", len(header)) + header + bytes(position)
    ours = read_header(io.BytesIO(data), len(data)).tensors
    assert_library_agrees(data, ours)
