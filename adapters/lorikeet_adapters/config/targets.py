"""Which modules the configuration of an adapter targets, decided as PEFT decides it.

The tensors are the truth about what an adapter has; PEFT drops those whose module its configuration does not target,
so such a file would mean two things at once. Owns the matching of a module's path inside the base model, and nothing
else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from lorikeet_adapters.config.patterns import check_expression

# What PEFT targets in every family served here when the configuration names nothing.
DEFAULT_TARGETS: Final = frozenset({"q_proj", "v_proj"})

_ALL_LINEAR: Final = "all-linear"
_ANY_LAYER: Final = r".*?\.[^.]*\.(?P<idx>\d+)\."


@dataclass(frozen=True, slots=True)
class Targets:
    """The fields that choose modules, as they are written."""

    modules: frozenset[str] | str
    exclude: frozenset[str] | str = frozenset()
    layers: frozenset[int] = frozenset()
    layers_patterns: tuple[str, ...] = ()

    def check_expressions(self) -> None:
        """Refuse what Python cannot read as a regular expression; nothing is matched."""
        if isinstance(self.modules, str) and not self.all_linear:
            check_expression("target_modules", self.modules, self.modules)
        if isinstance(self.exclude, str):
            check_expression("exclude_modules", self.exclude, self.exclude)
        for pattern in self.layers_patterns:
            check_expression("layers_pattern", pattern, _layer_expression(pattern))

    @property
    def all_linear(self) -> bool:
        """Whether every linear module is meant, but the output layer."""
        return isinstance(self.modules, str) and self.modules.lower() == _ALL_LINEAR

    def include(self, path: str) -> bool:
        """Whether PEFT would adapt the linear module at `path`."""
        if self._excludes(path):
            return False
        if isinstance(self.modules, str):
            return self.all_linear or re.fullmatch(self.modules, path) is not None
        if path in self.modules:
            return True
        return not _tails(path).isdisjoint(self.modules) and self._in_layers(path)

    def names_without_module(self, paths: Iterable[str]) -> list[str]:
        """Listed names that mean none of the modules at `paths`."""
        if isinstance(self.modules, str):
            return []
        meant = {tail for path in paths for tail in (path, *_tails(path))}
        return sorted(self.modules - meant)

    def _excludes(self, path: str) -> bool:
        if isinstance(self.exclude, str):
            return re.fullmatch(self.exclude, path) is not None
        return path in self.exclude or not _tails(path).isdisjoint(self.exclude)

    def _in_layers(self, path: str) -> bool:
        if not self.layers:
            return True
        expressions = map(_layer_expression, self.layers_patterns) if self.layers_patterns else (_ANY_LAYER,)
        found = next((match for match in (re.match(e, path) for e in expressions) if match is not None), None)
        number = None if found is None else found.groupdict().get("idx")
        return number is not None and int(number) in self.layers


def _layer_expression(pattern: str) -> str:
    return rf"(?:^|.*?\.){pattern}\.(?P<idx>\d+)\."


def _tails(path: str) -> frozenset[str]:
    """What follows each dot of `path`: a listed name means the modules it is a tail of."""
    return frozenset(_each_tail(path))


def _each_tail(path: str) -> Iterator[str]:
    position = path.find(".")
    while position >= 0:
        yield path[position + 1 :]
        position = path.find(".", position + 1)
