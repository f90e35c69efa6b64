"""20,000 damaged configurations: no crash, and what is accepted here PEFT loads and means as we do."""

from __future__ import annotations

import contextlib
import json
import math
import random
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from peft import LoraConfig, get_peft_model
from peft.tuners.tuners_utils import check_target_module_exists
from peft.utils.other import get_pattern_key
from transformers import LlamaForCausalLM

from lorikeet_adapters.config.patterns import limited_time
from lorikeet_adapters.config.settings import LoraSettings, read_config
from lorikeet_adapters.config.verdicts import FIELD_VERDICTS
from lorikeet_adapters.errors import AdapterRejected
from lorikeet_adapters.header import TensorEntry
from lorikeet_adapters.modules import MODULES
from lorikeet_adapters.rules.pairs import find_pairs
from lorikeet_adapters.rules.surroundings import check_surroundings
from lorikeet_adapters.rules.whole_model import WholeModel
from tests.adapters.fuzz.mutator import JUNK, Mutator
from tests.support.lora_files import CONFIG, N_LAYERS, TABLE

SEED = 5
N_CONFIGS = 20_000
N_MODELS = 150
PATHS = [f"model.layers.{layer}.{module}" for layer in range(N_LAYERS) for module in MODULES]
WORDS: tuple[object, ...] = (
    "q_proj", "v_proj", "self_attn.q_proj", "all-linear", "ALL-linear", r".*\.(q|v)_proj$", "layers.0.mlp.up_proj",
    "layers", "gaussian", "Gaussian", "orthogonal", "eva", "mica", "pissa", "loftq", "olora", "none", "all", "LORA",
    "CAUSAL_LM", "SEQ_CLS", "(", "^q_proj", "q_proj|v_proj", "lm_head", ["q_proj"], ["q_proj", "v_proj"], ["up_proj"],
    {"q_proj": 2}, {"q_proj": 8, ".*v_proj": 4}, {"rho": 0.5}, {"rho": 2.0, "tau": 0.5}, {"top_k": 1}, [0], [0, 1],
    0.05,
)  # fmt: skip
BASES: tuple[dict[str, Any], ...] = (
    {**LoraConfig(**CONFIG).to_dict(), "target_modules": ["q_proj", "v_proj"], "peft_type": "LORA"},
    {**CONFIG, "use_rslora": True, "rank_pattern": {"q_proj": 2, r"layers\.1\..*": 6}, "alpha_pattern": {"v_proj": 3}},
    {**CONFIG, "use_dora": True, "target_modules": r".*\.(q|v|up)_proj", "exclude_modules": ["layers.0.mlp.up_proj"]},
    {**CONFIG, "lora_bias": True, "layers_to_transform": [1], "layers_pattern": "layers", "init_lora_weights": True},
    {**CONFIG, "target_modules": "all-linear", "init_lora_weights": "orthogonal", "eva_config": {"rho": 2.0}},
)


def damaged_configs(n_configs: int, seed: int) -> Iterator[bytes]:
    """One in five with damage to its bytes, the others with other values in fields that exist or not."""
    mutator = Mutator(seed)
    rng = mutator.random
    texts = [json.dumps(base).encode() for base in BASES]
    fields = [*FIELD_VERDICTS, "a_field_of_the_future", "self", "cls", "args"]
    for _ in range(n_configs):
        if rng.random() < 0.2:
            yield mutator.bytes_of(rng.choice(texts), texts)
            continue
        changed = mutator.json_of(rng.choice(BASES), (*JUNK, *WORDS))
        if isinstance(changed, dict) and rng.random() < 0.7:
            changed[rng.choice(fields)] = rng.choice((*WORDS, *JUNK))
        yield json.dumps(changed).encode()


def read(data: bytes) -> LoraSettings | None:
    try:
        settings = read_config(data)
        settings.check_expressions()
    except AdapterRejected as error:
        error.message.encode("ascii")
        return None
    return settings


def loaded_by_peft(data: bytes) -> LoraConfig:
    """The configuration as PEFT makes it of the file's content."""
    fields = json.loads(data)
    fields.pop("runtime_config", None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config: LoraConfig = LoraConfig.from_peft_type(**LoraConfig.check_kwargs(**fields))
    return config


def assert_same_meaning(settings: LoraSettings, config: LoraConfig) -> None:
    assert (settings.use_dora, settings.lora_bias) == (bool(config.use_dora), bool(config.lora_bias))
    for path in PATHS:
        rank = config.rank_pattern.get(get_pattern_key(config.rank_pattern.keys(), path), config.r)
        alpha = config.alpha_pattern.get(get_pattern_key(config.alpha_pattern.keys(), path), config.lora_alpha)
        assert settings.rank_of(path) == rank
        assert settings.scale_of(path, rank) == (alpha / math.sqrt(rank) if config.use_rslora else alpha / rank)
        if config.target_modules is not None and not settings.targets.all_linear:
            assert settings.targets.include(path) == bool(check_target_module_exists(config, path)), path


@pytest.mark.slow
def test_what_is_accepted_peft_loads_with_the_same_ranks_scales_and_targets() -> None:
    seen: Counter[str] = Counter()
    for data in damaged_configs(N_CONFIGS, SEED):
        seen["configs"] += 1
        settings = read(data)
        if settings is None:
            continue
        seen["accepted"] += 1
        with contextlib.suppress(AdapterRejected), limited_time(2):
            assert_same_meaning(settings, loaded_by_peft(data))
            seen["compared"] += 1
    assert seen["configs"] == N_CONFIGS
    assert seen["compared"] > N_CONFIGS // 20, seen
    assert seen["accepted"] - seen["compared"] < 5, seen


@pytest.mark.slow
def test_an_accepted_configuration_makes_the_modules_we_expect_in_a_model(tiny_llama: LlamaForCausalLM) -> None:
    read_ones = ((data, read(data)) for data in damaged_configs(N_CONFIGS, SEED + 1))
    accepted = [(data, settings) for data, settings in read_ones if settings is not None and settings.max_rank <= 64]
    n_built = 0
    for data, settings in random.Random(SEED).sample(accepted, N_MODELS):
        expected = {path for path in PATHS if settings.targets.include(path)}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = get_peft_model(LlamaForCausalLM(tiny_llama.config), loaded_by_peft(data))
        except ValueError:
            if expected and not is_refused(settings, expected):
                raise
            continue
        n_built += 1
        for path in PATHS:
            linear = model.get_submodule(f"base_model.model.{path}")
            assert hasattr(linear, "lora_A") == (path in expected), (data, path)
            if path in expected:
                rank = settings.rank_of(path)
                assert (linear.r["default"], linear.scaling["default"]) == (rank, settings.scale_of(path, rank))
                assert ("default" in linear.lora_magnitude_vector) == settings.use_dora
                assert (linear.lora_B["default"].bias is not None) == settings.lora_bias
    assert n_built > N_MODELS // 3


def is_refused(settings: LoraSettings, paths: set[str]) -> bool:
    """Whether a file with tensors for these modules would be refused for what the configuration says."""
    content: list[TensorEntry] = []
    for path in sorted(paths):
        module = re.sub(r"model\.layers\.\d+\.", "", path)
        linear, rank = TABLE.linears[module], settings.rank_of(path)
        shapes: dict[str, tuple[int, ...]] = {
            "lora_A.weight": (rank, linear.in_features),
            "lora_B.weight": (linear.out_features, rank),
        }
        if settings.lora_bias:
            shapes["lora_B.bias"] = (linear.out_features,)
        if settings.use_dora:
            shapes["lora_magnitude_vector"] = (linear.out_features,)
        content += [
            TensorEntry(f"base_model.model.{path}.{name}", "F32", shape, 0, 0) for name, shape in shapes.items()
        ]
    try:
        pairs = find_pairs(settings, content, TABLE, 1 << 20)
        check_surroundings(settings, pairs, WholeModel.around(pairs, TABLE))
    except AdapterRejected:
        return True
    return False
