"""Where every module lies in the model that an adapter was trained in, whether it can have an adapter or not.

The author's model need not be named like the served one: its layers lie under the prefix that the tensors have, and
what a configuration says is said of the author's names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lorikeet_adapters.modules import ModuleTable
from lorikeet_adapters.rules.pairs import Pair

SERVED_PREFIX = "model."
_HEAD = "lm_head"
_INSIDE_ANOTHER = "language_model."
_IN_A_LAYER = ("", ".self_attn", ".mlp", ".mlp.act_fn", ".input_layernorm", ".post_attention_layernorm")
_IN_A_MODEL = ("layers", "norm", "rotary_emb")


@dataclass(frozen=True, slots=True)
class WholeModel:
    """The served model under its author's names; `prefix` is what stands before `layers.`."""

    prefix: str
    table: ModuleTable

    @classmethod
    def around(cls, pairs: Sequence[Pair], table: ModuleTable) -> WholeModel:
        """The one that these pairs, all under one prefix, belong to."""
        first = pairs[0]
        return cls(first.path.removesuffix(f"layers.{first.layer}.{first.module}"), table)

    def linears(self) -> list[str]:
        """Those that may have tensors."""
        return [
            f"{self.prefix}layers.{n}.{module}" for n in range(self.table.n_layers) for module in self.table.linears
        ]

    @property
    def head(self) -> str:
        """The output layer, to which PEFT can add an adapter."""
        return f"{_INSIDE_ANOTHER}{_HEAD}" if self.prefix.startswith(_INSIDE_ANOTHER) else _HEAD

    @property
    def embedding(self) -> str:
        """The other module that PEFT can add an adapter to and that none is served for."""
        return f"{self.prefix}embed_tokens"

    def others(self) -> Iterator[str]:
        """Modules that PEFT has no adapter for."""
        if self.prefix:
            yield self.prefix.removesuffix(".")
        yield from (f"{self.prefix}{name}" for name in _IN_A_MODEL)
        for layer in range(self.table.n_layers):
            yield from (f"{self.prefix}layers.{layer}{name}" for name in _IN_A_LAYER)
            yield from (f"{self.prefix}layers.{layer}.{name}" for name in self.table.norms)

    def author_name(self, served: str) -> str:
        """What the served model's module `served` is called here; empty for what has no name."""
        if served == _HEAD:
            return self.head
        if served == SERVED_PREFIX.removesuffix("."):
            return self.prefix.removesuffix(".")
        return self.prefix + served.removeprefix(SERVED_PREFIX) if served else ""
