"""What a configuration names and the weights do not have: reasons to tell the user, not to refuse."""

from __future__ import annotations

from collections.abc import Sequence

from lorikeet_adapters.config.settings import LoraSettings
from lorikeet_adapters.modules import ModuleTable
from lorikeet_adapters.rules.pairs import Pair
from lorikeet_adapters.rules.whole_model import WholeModel


def missing_tensors(settings: LoraSettings, pairs: Sequence[Pair], model: WholeModel) -> list[str]:
    """Modules to which PEFT adds an adapter and that the file has no tensors for."""
    present = {pair.path for pair in pairs}
    # "all-linear" is every linear but the output layer.
    outer = [] if settings.targets.all_linear else [model.head, model.embedding]
    return [path for path in (*model.linears(), *outer) if path not in present and settings.targets.include(path)]


def untouched_targets(settings: LoraSettings, pairs: Sequence[Pair], model: WholeModel) -> list[str]:
    """Modules and names that the configuration targets and the adapter has no tensors for."""
    paths = [*model.linears(), model.head, model.embedding]
    return missing_tensors(settings, pairs, model) + settings.targets.names_without_module(paths)


def unmatched_patterns(settings: LoraSettings, pairs: Sequence[Pair]) -> int:
    """How many keys of rank_pattern and alpha_pattern match no module of the adapter."""
    patterns = [pattern for pattern, _ in (*settings.rank_patterns, *settings.alpha_patterns)]
    return sum(not any(pattern.matches(pair.path) for pair in pairs) for pattern in patterns)


def names_same_model(name: str, table: ModuleTable) -> bool:
    """Whether two spellings may mean one model: the last part of a path or hub id, in any case."""
    return _last_part(name) == _last_part(table.base_model)


def _last_part(name: str) -> str:
    return name.rstrip("/\\").replace("\\", "/").rsplit("/", 1)[-1].casefold()
