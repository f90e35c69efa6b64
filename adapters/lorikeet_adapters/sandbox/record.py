"""What the jailed validator says of an adapter, and whether to believe that it is an answer at all.

The child has read a stranger's bytes, so its answer may be the stranger's: every field is checked for type and bounds,
and the digest is that of the bytes which arrived here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from lorikeet_adapters.config.settings import MAX_WHOLE
from lorikeet_adapters.header import MAX_TENSORS
from lorikeet_adapters.manifest import GRAIN, MAX_RANK
from lorikeet_adapters.modules import MODULES, ModuleTable
from lorikeet_adapters.sandbox.rejection import shown
from lorikeet_adapters.validate import DTYPE_NAMES

ITEMSIZES: Final = (2, 4)
MAX_WARNINGS: Final = 64
MAX_CONFIG_ITEMS: Final = 256  # of one object or list; `config` has no longer ones
MAX_TEXT: Final = 512

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_DECIMAL: Final = re.compile(r"[1-9][0-9]{0,4}")
_MAX_GRAINS: Final = 1 << 31
_Items = TypeVar("_Items", dict[str, Any], list[Any])


class BadAnswer(Exception):
    """The answer does not have the form of one; the message names the field."""


@dataclass(frozen=True, slots=True)
class ValidatedRecord:
    """An adapter that passed every check.

    Attributes:
        digest: SHA-256 of its normalised file.
        modules: how many layers have a pair, by module.
        ranks: how many pairs have which rank; keys are decimal text, as in JSON.
        dtype: of the uploaded weights.
        config: the fields of its configuration that decide the answer, for the record.
        n_grains: its size in an arena, by bytes of an element.
    """

    digest: str
    rank_max: int
    n_layers: int
    modules: Mapping[str, int]
    ranks: Mapping[str, int]
    dtype: str
    tensor_count: int
    target_modules: tuple[str, ...]
    config: dict[str, object]
    warnings: tuple[str, ...]
    n_grains: Mapping[int, int]

    def serving_bytes(self, itemsize: int) -> int:
        """Bytes it occupies in an arena whose elements have `itemsize` bytes."""
        return self.n_grains[itemsize] * GRAIN * itemsize


def record_of(answer: object, *, table: ModuleTable, max_rank: int) -> ValidatedRecord:
    """The record in the child's answer.

    Raises:
        BadAnswer: it is none.
    """
    fields = _object(answer, "the answer")
    names = set(ValidatedRecord.__dataclass_fields__) - {"n_layers"}
    _require(fields.keys() == names, "the answer")
    modules = {
        _among(module, MODULES, "modules"): _whole(layers, table.n_layers, "modules")
        for module, layers in _object(fields["modules"], "modules").items()
    }
    ranks = {
        _decimal(rank, max_rank): _whole(pairs, MAX_TENSORS, "ranks")
        for rank, pairs in _object(fields["ranks"], "ranks").items()
    }
    rank_max = _whole(fields["rank_max"], min(max_rank, MAX_RANK), "rank_max")
    targets = tuple(_among(name, MODULES, "target_modules") for name in _list(fields["target_modules"]))
    _require(sum(modules.values()) == sum(ranks.values()) > 0, "ranks")
    _require(rank_max == max(int(rank) for rank in ranks), "rank_max")
    _require(targets == tuple(module for module in MODULES if module in modules), "target_modules")
    n_grains = _object(fields["n_grains"], "n_grains")
    _require(n_grains.keys() == {str(size) for size in ITEMSIZES}, "n_grains")
    return ValidatedRecord(
        digest=_digest(fields["digest"]),
        rank_max=rank_max,
        n_layers=table.n_layers,
        modules=modules,
        ranks=ranks,
        dtype=_among(fields["dtype"], tuple(DTYPE_NAMES.values()), "dtype"),
        tensor_count=_whole(fields["tensor_count"], MAX_TENSORS, "tensor_count"),
        target_modules=targets,
        config=_config(fields["config"]),
        warnings=_warnings(fields["warnings"]),
        n_grains={size: _whole(n_grains[str(size)], _MAX_GRAINS, "n_grains") for size in ITEMSIZES},
    )


def _require(holds: bool, field: str) -> None:
    if not holds:
        raise BadAnswer(field)


def _object(value: object, field: str) -> dict[str, Any]:
    _require(isinstance(value, dict), field)
    assert isinstance(value, dict)
    return value


def _list(value: object) -> list[object]:
    _require(isinstance(value, list), "a list")
    assert isinstance(value, list)
    return value


def _whole(value: object, most: int, field: str) -> int:
    _require(type(value) is int and 1 <= value <= most, field)
    assert isinstance(value, int)
    return value


def _among(value: object, allowed: tuple[str, ...], field: str) -> str:
    _require(isinstance(value, str) and value in allowed, field)
    return str(value)


def _decimal(rank: str, max_rank: int) -> str:
    _require(_DECIMAL.fullmatch(rank) is not None and int(rank) <= max_rank, "ranks")
    return rank


def _digest(value: object) -> str:
    _require(isinstance(value, str) and _DIGEST.fullmatch(value) is not None, "digest")
    return str(value)


def _config(value: object) -> dict[str, object]:
    """For a database and for pages: plain JSON, two levels of it, whose texts are short and printable."""
    return {_text(key): _plain(item, depth=1) for key, item in _bounded(_object(value, "config")).items()}


def _plain(value: object, *, depth: int) -> object:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float):
        _require(math.isfinite(value), "config")
        return value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        _require(abs(value) <= MAX_WHOLE, "config")
        return value
    _require(depth > 0 and isinstance(value, dict | list), "config")
    if isinstance(value, dict):
        return {_text(key): _plain(item, depth=depth - 1) for key, item in _bounded(value).items()}
    assert isinstance(value, list)
    return [_plain(item, depth=depth - 1) for item in _bounded(value)]


def _bounded(items: _Items) -> _Items:
    _require(len(items) <= MAX_CONFIG_ITEMS, "config")
    return items


def _text(value: object) -> str:
    _require(isinstance(value, str) and len(value) <= MAX_TEXT and value.isprintable(), "config")
    return str(value)


def _warnings(value: object) -> tuple[str, ...]:
    lines = _list(value)
    _require(len(lines) <= MAX_WARNINGS, "warnings")
    _require(all(isinstance(line, str) for line in lines), "warnings")
    return tuple(shown(str(line)) for line in lines)
