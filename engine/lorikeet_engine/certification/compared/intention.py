"""What a configuration says of every module of its author's model, worked out by PEFT and spelled for the served one.

A configuration names modules as its author's model did. PEFT's own functions decide here which of them are targeted and
with which rank and alpha; what is handed to PEFT then says so for each of the served model's modules, and holds no
expression of a stranger's.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

import torch
from peft.tuners.tuners_utils import check_target_module_exists
from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as DEFAULT_TARGETS
from peft.utils.other import get_pattern_key

from lorikeet_adapters.rules.whole_model import WholeModel

_ALL_LINEAR: Final = "all-linear"


def spell_out(config: Any, model: Any, author: WholeModel) -> None:
    """Let `config` name modules of `model`, the base model, one by one.

    Raises:
        ValueError: it targets nothing, or what PEFT has no adapter for.
    """
    names = {name: author.author_name(name) for name, _ in model.named_modules()}
    _resolve_targets(config, model, names)
    targeted = [name for name, path in names.items() if path and check_target_module_exists(config, path)]
    _check_kinds(targeted, model)
    paths = {name: names[name] for name in targeted}
    config.rank_pattern = _by_value(config.rank_pattern, paths)
    config.alpha_pattern = _by_value(config.alpha_pattern, paths)
    config.target_modules = set(targeted)
    config.exclude_modules = config.layers_to_transform = config.layers_pattern = None


def _resolve_targets(config: Any, model: Any, names: Mapping[str, str]) -> None:
    """What PEFT reads out of a model: its family's default, or all its linears but the output layer."""
    if config.target_modules is None:
        family = model.config.model_type
        if family not in DEFAULT_TARGETS:
            raise ValueError(f"target_modules: PEFT has no default for {family}")
        config.target_modules = set(DEFAULT_TARGETS[family])
    elif isinstance(config.target_modules, str) and config.target_modules.lower() == _ALL_LINEAR:
        head = model.get_output_embeddings()
        linears = [name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)]
        config.target_modules = {names[name] for name in linears if model.get_submodule(name) is not head}


def _check_kinds(targeted: Iterable[str], model: Any) -> None:
    wrong = [
        name for name in targeted if not isinstance(model.get_submodule(name), torch.nn.Linear | torch.nn.Embedding)
    ]
    if wrong or not targeted:
        raise ValueError(f"target_modules: {f'{wrong[0]} cannot have an adapter' if wrong else 'nothing is targeted'}")


def _by_value(patterns: Mapping[str, Any], paths: Mapping[str, str]) -> dict[str, Any]:
    """One pattern for each value, of the names that have it; the others have none."""
    found: dict[str, Any] = {}
    for key, value in patterns.items():
        # One key after the other over all modules: Python keeps few expressions compiled.
        for name, path in paths.items():
            if name not in found and get_pattern_key([key], path) == key:
                found[name] = value
    groups: dict[Any, list[str]] = defaultdict(list)
    for name, value in found.items():
        groups[value].append(re.escape(name))
    return {f"^(?:{'|'.join(group)})": value for value, group in groups.items()}
