"""Modules of a Llama-family model beside the linears of its layers.

PEFT compares a configuration with every module of a model, so what expressions do there decides whether it loads the
file, and how long that takes. It stops at the first module that is targeted and that it has no adapter for.
"""

from __future__ import annotations

from lorikeet_adapters.config.patterns import RegularPattern
from lorikeet_adapters.config.settings import LoraSettings
from lorikeet_adapters.errors import AdapterRejected, listed, quoted
from lorikeet_adapters.rules.leftovers import missing_tensors
from lorikeet_adapters.rules.pairs import Pair
from lorikeet_adapters.rules.whole_model import WholeModel


def check_surroundings(settings: LoraSettings, pairs: tuple[Pair, ...], model: WholeModel) -> None:
    """Refuse a configuration that means something else for the whole model than its tensors say."""
    if not settings.names_targets and not model.table.has_default_targets:
        raise AdapterRejected(
            "target_mismatch",
            subject="target_modules",
            found="none, and PEFT has no default for the base model",
            allowed="the names of the modules that have tensors",
        )
    _evaluate_everywhere(settings, model)
    _check_adaptable(settings, pairs[0], model)
    _check_start(settings, pairs, model)


def _evaluate_everywhere(settings: LoraSettings, model: WholeModel) -> None:
    """Compare every expression with every name once, so that one that takes for ever on a single name does so here."""
    patterns = [
        pattern
        for pattern, _ in (*settings.rank_patterns, *settings.alpha_patterns)
        if isinstance(pattern, RegularPattern)
    ]
    for path in ("", model.head, model.embedding, *model.others(), *model.linears()):
        settings.targets.include(path)
        for pattern in patterns:
            pattern.matches(path)


def _check_adaptable(settings: LoraSettings, first: Pair, model: WholeModel) -> None:
    if settings.targets.all_linear:
        return
    # An embedding may be targeted, and has no tensors here; but there is no bias in PEFT's adapter of one.
    paths = (*model.others(), model.embedding) if settings.lora_bias else model.others()
    wrong = next((path for path in paths if settings.targets.include(path)), None)
    if wrong is not None:
        raise AdapterRejected(
            "target_mismatch",
            subject="target_modules",
            found=f"targets that mean {quoted(wrong)} as well",
            allowed=f"linear modules, such as {first.module}",
            advice="PEFT has no adapter for that module and does not load the file.",
        )


def _check_start(settings: LoraSettings, pairs: tuple[Pair, ...], model: WholeModel) -> None:
    """What a targeted module without tensors begins with must change nothing."""
    missing = missing_tensors(settings, pairs, model) if settings.starts_random else []
    if missing:
        raise AdapterRejected(
            "target_mismatch",
            subject="target_modules",
            found=f"{len(missing)} modules without tensors beside init_lora_weights: false: {listed(missing)}",
            allowed="modules that all have tensors",
            advice="PEFT leaves random numbers in the others, which no two loads share.",
        )
