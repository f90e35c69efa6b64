"""Each option of the exactness list alone, in every spelling that PEFT writes, against PEFT with the adapter reloaded.

Float32 on both sides: the relative norm of the difference of logits over the vocabulary is at most 1e-5, and greedy
tokens are equal. Somebody who ignores an option is off by a thousand times as much, which is tested as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from lorikeet_adapters.image import AdapterImage
from lorikeet_adapters.manifest import GRAIN
from lorikeet_adapters.modules import MODULES, ModuleTable
from lorikeet_engine.execution.runner import ModelRunner
from lorikeet_engine.model_spec import load_model_spec
from tests.support.closeness import relative_error
from tests.support.device import Driven, open_linears, open_runner, plan_of, random_ids
from tests.support.lora_files import validate_folder
from tests.support.ops_cases import BACKENDS
from tests.support.peft_adapters import OPTIONS, shard, spell, without
from tests.support.tiny_models import (
    VOCAB,
    load_adapted_oracle,
    load_oracle,
    oracle_logits,
    pack_adapter,
    save_adapter,
    save_model,
)

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
TOLERANCE = 1e-5
BF16_TOLERANCE = 0.03
NOTICED = 1e-2
PLACE = 3
PROMPT = random_ids(11, vocab=VOCAB, seed=4)
N_TOKENS = 6
PREFIXES = (
    "base_model.model.model.",
    "base_model.model.",
    "base_model.model.language_model.model.",
    "base_model.model.model.language_model.",
    "model.",
)


@dataclass
class Tiny:
    """One model; adapters of it by option, and what PEFT answers with them, are made when they are first asked for."""

    directory: Path
    folder: Path
    _logits: dict[str, torch.Tensor] = field(default_factory=dict)

    @property
    def table(self) -> ModuleTable:
        return load_model_spec(self.directory).module_table("tiny")

    def adapter(self, option: str) -> Path:
        folder = self.folder / option
        return folder if folder.exists() else save_adapter(self.directory, folder, **OPTIONS[option])

    def expected(self, option: str) -> torch.Tensor:
        """Logits of the prompt and of each greedy token but the last, [1 + N_TOKENS, vocab]."""
        if option not in self._logits:
            self._logits[option] = greedy_logits(load_adapted_oracle(self.directory, self.adapter(option)))
        return self._logits[option]

    def pack(self, folder: Path, backend: str, dtype: str = "float32") -> AdapterImage:
        base = open_linears(self.directory, BACKENDS[backend](), dtype=DTYPES[dtype])
        return pack_adapter(folder, self.table, DTYPES[dtype], base)

    def found(self, folder: Path, backend: str, n_tokens: int = N_TOKENS, *, dtype: str = "float32") -> torch.Tensor:
        """As `expected`, by our own runner."""
        runner = open_runner(self.directory, adapter_pool_bytes=2 << 20, ops=BACKENDS[backend](), dtype=dtype)
        runner.write_extent(PLACE, self.pack(folder, backend, dtype))
        return driven_logits(runner, n_tokens)


def greedy_logits(oracle: Any) -> torch.Tensor:
    tokens = list(PROMPT)
    logits = [oracle_logits(oracle, tokens)[-1]]
    for _ in range(N_TOKENS):
        tokens.append(int(logits[-1].argmax()))
        logits.append(oracle_logits(oracle, tokens)[-1])
    return torch.stack(logits)


def driven_logits(runner: ModelRunner, n_tokens: int) -> torch.Tensor:
    request = Driven("r", list(PROMPT), tuple(range(1, 9)), extent=PLACE)
    logits = [runner.logits(plan_of([request.row()]))[0]]
    for _ in range(n_tokens):
        request.generated.append(int(logits[-1].argmax()))
        logits.append(runner.logits(plan_of([request.row()]))[0])
    return torch.stack([row.clone() for row in logits])


def assert_equal(found: torch.Tensor, expected: torch.Tensor) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        assert relative_error(ours, theirs) <= TOLERANCE
        assert ours.argmax() == theirs.argmax()


@pytest.fixture(scope="module", params=["llama", "qwen2"])
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    folder = tmp_path_factory.mktemp(request.param)
    return Tiny(save_model(request.param, folder / "model"), folder)


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("backend", ["cpu", "native"])
def test_an_option_is_answered_as_peft_answers_it(tiny: Tiny, option: str, backend: str) -> None:
    assert_equal(tiny.found(tiny.adapter(option), backend), tiny.expected(option))
    base = oracle_logits(load_oracle(tiny.directory), PROMPT)[-1]
    assert relative_error(base, tiny.expected(option)[0]) >= NOTICED, "the adapter changes nothing that could be wrong"


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("backend", ["cpu", "native"])
def test_an_option_in_bfloat16_is_as_near_as_pefts_own_bfloat16(tiny: Tiny, option: str, backend: str) -> None:
    """PEFT in bf16 is 0.007 to 0.027 away from itself in float32, by option; so are we."""
    found = tiny.found(tiny.adapter(option), backend, 0, dtype="bfloat16")
    assert relative_error(found[0].float(), tiny.expected(option)[0]) <= BF16_TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("option", OPTIONS)
def test_the_kernels_of_a_gpu_answer_an_option_as_peft_does(tiny: Tiny, option: str) -> None:
    """Interpreted, so with one decoded token only."""
    assert_equal(tiny.found(tiny.adapter(option), "interpreter", 1), tiny.expected(option)[:2])


@pytest.mark.parametrize(
    ("option", "ignored"),
    [
        ("rslora_16", "use_rslora"),
        ("rslora_64", "use_rslora"),
        ("lora_bias", "lora_bias"),
        ("lora_bias_rslora", "lora_bias"),
        ("lora_bias_rslora", "use_rslora"),
        ("dora", "use_dora"),
        ("dora_rslora", "use_dora"),
        ("dora_rslora", "use_rslora"),
        ("dora_patterns", "alpha_pattern"),
        ("patterns", "alpha_pattern"),
    ],
)
def test_an_option_that_is_ignored_would_be_noticed(tiny: Tiny, option: str, ignored: str, tmp_path: Path) -> None:
    folder = without(tiny.adapter(option), tmp_path, ignored)
    found = tiny.found(folder, "native", 0)
    assert relative_error(found[0], tiny.expected(option)[0]) >= NOTICED


def expansion(tiny: Tiny, folder: Path, layer: int, module: str) -> torch.Tensor:
    """Bt of one module, as it is served."""
    image, linear = tiny.pack(folder, "native"), tiny.table.linears[module]
    head = image.extent.view(torch.int32)[: tiny.table.n_layers * len(MODULES) * 2]
    start, word = head.view(-1, len(MODULES), 2)[layer, MODULES.index(module)].tolist()
    rank = word & 0xFFFF
    begin = start * GRAIN + rank * linear.in_features
    return image.extent[begin : begin + rank * linear.out_features].view(rank, -1)


@pytest.mark.parametrize("rank", [16, 64])
def test_a11_rslora_is_stronger_by_the_square_root_of_the_rank(tiny: Tiny, rank: int, tmp_path: Path) -> None:
    adapter = tiny.adapter(f"rslora_{rank}")
    ratio = expansion(tiny, adapter, 0, "self_attn.q_proj") / expansion(
        tiny, without(adapter, tmp_path, "use_rslora"), 0, "self_attn.q_proj"
    )
    torch.testing.assert_close(ratio, torch.full_like(ratio, math.sqrt(rank)))


def test_a12_patterns_give_each_module_its_rank_and_scale_and_memory(tiny: Tiny) -> None:
    """Scale 4 and rank 32 in the attention of layer 1, scale 2 and rank 8 elsewhere, and bytes accordingly."""
    adapter = validate_folder(tiny.adapter("patterns"), tiny.table)
    for delta in adapter.deltas:
        is_larger = delta.layer == 1 and delta.module.startswith("self_attn.")
        assert (delta.rank, delta.scale) == ((32, 4.0) if is_larger else (8, 2.0)), (delta.layer, delta.module)
    image = tiny.pack(tiny.adapter("patterns"), "native")
    widths = {(d.rank, d.a.shape[1] + d.b.shape[0], d.layer, d.module) for d in adapter.deltas}
    head_bytes = -(-tiny.table.n_layers * len(MODULES) * 8 // 64) * 64
    assert image.extent.nbytes == head_bytes + 4 * sum(rank * width for rank, width, _, _ in widths)
    assert image.extent.nbytes == adapter.serving_bytes(4)
    assert image.rank_max == adapter.rank_max == 32


@pytest.mark.parametrize("name", ["", ".default"])
@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("option", ["mixed_ranks", "lora_bias", "dora"])
def test_a13_every_prefix_that_is_known_means_the_same_adapter(
    tiny: Tiny, option: str, prefix: str, name: str, tmp_path: Path
) -> None:
    folder = spell(tiny.adapter(option), tmp_path, prefix=prefix, name=name)
    assert torch.equal(tiny.pack(folder, "native").extent, tiny.pack(tiny.adapter(option), "native").extent)
    assert_equal(tiny.found(folder, "native", 0), tiny.expected(option)[:1])


@pytest.mark.parametrize("option", ["all_linear", "lora_bias", "dora"])
def test_a18_an_adapter_in_shards_is_the_adapter(tiny: Tiny, option: str, tmp_path: Path) -> None:
    folder = shard(tiny.adapter(option), tmp_path, n_bytes=15_000)
    assert len(list(folder.glob("*.safetensors"))) > 2
    assert torch.equal(tiny.pack(folder, "native").extent, tiny.pack(tiny.adapter(option), "native").extent)
    assert_equal(tiny.found(folder, "native"), tiny.expected(option))
