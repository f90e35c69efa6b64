"""Modules of a Llama-family model beside the linears of its layers, which PEFT cannot adapt.

PEFT stops at the first module that its configuration targets and that it has no adapter for, so an expression that
matches more than linears belongs to a file that PEFT does not load.
"""

from __future__ import annotations

from collections.abc import Iterator

from lorikeet_adapters.config.settings import LoraSettings
from lorikeet_adapters.errors import AdapterRejected, quoted
from lorikeet_adapters.modules import ModuleTable
from lorikeet_adapters.rules.pairs import Pair

_IN_A_LAYER = ("", ".self_attn", ".mlp", ".mlp.act_fn", ".input_layernorm", ".post_attention_layernorm")
_IN_A_MODEL = ("layers", "norm", "rotary_emb")


def check_surroundings(settings: LoraSettings, first: Pair, table: ModuleTable) -> None:
    """Refuse a configuration that targets a module which cannot have an adapter."""
    if settings.targets.all_linear:
        return
    prefix = first.path.removesuffix(f"layers.{first.layer}.{first.module}")
    wrong = next((path for path in _paths(settings, prefix, table) if settings.targets.include(path)), None)
    if wrong is not None:
        raise AdapterRejected(
            "target_mismatch",
            subject="target_modules",
            found=f"targets that mean {quoted(wrong)} as well",
            allowed=f"linear modules, such as {first.module}",
            advice="PEFT has no adapter for that module and does not load the file.",
        )


def _paths(settings: LoraSettings, prefix: str, table: ModuleTable) -> Iterator[str]:
    if prefix:
        yield prefix.removesuffix(".")
    yield from (f"{prefix}{name}" for name in _IN_A_MODEL)
    # An embedding may be targeted, and has no tensors here; but there is no bias in PEFT's adapter of one.
    if settings.lora_bias:
        yield f"{prefix}embed_tokens"
    for layer in range(table.n_layers):
        yield from (f"{prefix}layers.{layer}{name}" for name in _IN_A_LAYER)
