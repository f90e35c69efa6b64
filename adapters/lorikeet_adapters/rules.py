"""What the tensors of an adapter file must be, as ordered checks on its header; no weight is read here.

Each check is one function that raises AdapterRejected; `find_pairs` runs them in order. The tensors are the truth
about which modules an adapter has; the configuration may not contradict them, and names beyond them are a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from lorikeet_adapters.config import FIELD_VERDICTS, LoraSettings
from lorikeet_adapters.errors import AdapterRejected, listed, quoted
from lorikeet_adapters.files import WEIGHTS_FILE
from lorikeet_adapters.header import Header, TensorEntry
from lorikeet_adapters.manifest import MAX_RANK
from lorikeet_adapters.modules import MODULES, ModuleTable

MAX_SCALE: Final = 64.0
MAX_NAME_CHARACTERS: Final = 256

# Everything that PEFT, or a model around the language model, has been seen to write before "layers.N.".
_PREFIXES: Final = (
    "base_model.model.model.",
    "base_model.model.",
    "base_model.model.language_model.model.",
    "base_model.model.model.language_model.",
    "model.",
)
_WRAPPER: Final = "base_model.model."  # PEFT's own part of a name; patterns match what follows it
_NAME: Final = re.compile(r"(.+)\.lora_([AB])((?:\.default)?)\.weight")
_PLACE: Final = re.compile(rf"((?:{'|'.join(map(re.escape, _PREFIXES))}))layers\.(0|[1-9][0-9]{{0,5}})\.(.+)")
_FEATURE_MARKS: Final = (
    ("lora_magnitude_vector", "use_dora"),
    (".lora_B.bias", "lora_bias"),
    (".lora_B.default.bias", "lora_bias"),
    ("modules_to_save", "modules_to_save"),
    ("trainable_tokens", "trainable_token_indices"),
)
_OUTER_MODULES: Final = ("embed_tokens", "lm_head")


@dataclass(frozen=True, slots=True)
class Pair:
    """The two matrices of one module, with the rank and scale they are served with."""

    layer: int
    module: str
    path: str
    rank: int
    scale: float
    a: TensorEntry
    b: TensorEntry


@dataclass(frozen=True, slots=True)
class _Named:
    """A tensor whose name has been understood."""

    spelling: tuple[str, str]
    path: str
    layer: int
    module: str
    side: str
    tensor: TensorEntry


@dataclass(frozen=True, slots=True)
class _Sides:
    """A and B of one module before their shapes are known to fit."""

    place: _Named
    a: TensorEntry
    b: TensorEntry


def find_pairs(settings: LoraSettings, header: Header, table: ModuleTable, max_rank: int) -> tuple[Pair, ...]:
    """Every pair of the file in canonical order: by layer, then in the order of MODULES."""
    check_rank_limit(settings, max_rank)
    check_dtype(header)
    named = name_tensors(header)
    check_places(named, table)
    sides = pair_up(named)
    for pair in sides:
        check_shapes(pair, table)
        check_rank(pair, settings, max_rank)
    check_targets(settings, sides)
    return tuple(_scaled(pair, settings) for pair in sides)


def check_rank_limit(settings: LoraSettings, max_rank: int) -> None:
    """No rank the configuration names may exceed the platform's maximum."""
    if settings.max_rank > min(max_rank, MAX_RANK):
        raise AdapterRejected(
            "rank_too_large", subject="r", found=str(settings.max_rank), allowed=f"at most {min(max_rank, MAX_RANK)}"
        )


def check_dtype(header: Header) -> None:
    """One element type for the whole file."""
    first = header.tensors[0].dtype
    other = next((tensor for tensor in header.tensors if tensor.dtype != first), None)
    if other is not None:
        raise AdapterRejected(
            "dtype_unsupported",
            subject=quoted(other.name).strip("'"),
            found=other.dtype,
            allowed=f"one dtype for all tensors, here {first}",
        )


def name_tensors(header: Header) -> list[_Named]:
    """Every tensor with the place its name means; unknown names are refused with their list."""
    named: list[_Named] = []
    unknown: list[str] = []
    outside: list[str] = []
    for tensor in header.tensors:
        name = _NAME.fullmatch(tensor.name) if len(tensor.name) <= MAX_NAME_CHARACTERS else None
        if name is None:
            unknown.append(tensor.name)
            continue
        place = _PLACE.fullmatch(name[1])
        if place is None:
            outside.append(tensor.name)
            continue
        spelling = (place[1], name[3])
        path = name[1].removeprefix(_WRAPPER)
        named.append(_Named(spelling, path, int(place[2]), place[3], name[2], tensor))
    if unknown:
        raise _unknown_names(unknown)
    if outside:
        raise _outside_names(outside)
    _check_one_spelling(named)
    return named


def check_places(named: Iterable[_Named], table: ModuleTable) -> None:
    """Every name must mean a linear module that the base model has."""
    unknown = [
        place.tensor.name for place in named if place.module not in table.linears or place.layer >= table.n_layers
    ]
    if unknown:
        raise AdapterRejected(
            "module_unknown",
            subject=quoted(unknown[0]).strip("'"),
            found=f"{len(unknown)} tensors of modules the base model lacks: {listed(unknown)}",
            allowed=f"layers 0 to {table.n_layers - 1} of {', '.join(table.linears)}",
        )


def pair_up(named: Iterable[_Named]) -> tuple[_Sides, ...]:
    """A and B of every module; each must be there once."""
    places: dict[tuple[int, int], dict[str, _Named]] = {}
    for place in named:
        places.setdefault((place.layer, MODULES.index(place.module)), {})[place.side] = place
    pairs = []
    for _, sides in sorted(places.items()):
        if len(sides) != 2:
            (only,) = sides.values()
            missing = "lora_B" if only.side == "A" else "lora_A"
            raise AdapterRejected(
                "pair_incomplete", subject=only.tensor.name, found=f"no {missing} beside it", allowed="one A and one B"
            )
        pairs.append(_Sides(sides["A"], sides["A"].tensor, sides["B"].tensor))
    return tuple(pairs)


def check_shapes(pair: _Sides, table: ModuleTable) -> None:
    """A is [rank, in] and B is [out, rank] for this module of this base model."""
    linear = table.linears[pair.place.module]
    for tensor in (pair.a, pair.b):
        if len(tensor.shape) != 2:
            raise AdapterRejected(
                "shape_invalid", subject=tensor.name, found=f"shape {list(tensor.shape)}", allowed="two dimensions"
            )
    for tensor, width, wanted in (
        (pair.a, pair.a.shape[1] == linear.in_features, f"[rank, {linear.in_features}]"),
        (pair.b, pair.b.shape[0] == linear.out_features, f"[{linear.out_features}, rank]"),
    ):
        if not width:
            raise AdapterRejected(
                "base_model_mismatch",
                subject=tensor.name,
                found=f"shape {list(tensor.shape)}",
                allowed=f"{wanted} for {table.base_model}",
                advice="The adapter was trained on another base model.",
            )
    if pair.a.shape[0] != pair.b.shape[1]:
        raise AdapterRejected(
            "rank_mismatch",
            subject=pair.b.name,
            found=f"rank {pair.b.shape[1]}",
            allowed=f"the rank of its A, {pair.a.shape[0]}",
        )


def check_rank(pair: _Sides, settings: LoraSettings, max_rank: int) -> None:
    """The rank of the tensors is the configured one, and not above the maximum."""
    rank = pair.a.shape[0]
    configured = settings.rank_of(pair.place.path)
    if rank != configured:
        raise AdapterRejected(
            "rank_mismatch",
            subject=pair.a.name,
            found=f"rank {rank}",
            allowed=f"{configured}, which r and rank_pattern give this module",
        )
    if rank > max_rank:
        raise AdapterRejected("rank_too_large", subject=pair.a.name, found=str(rank), allowed=f"at most {max_rank}")


def check_targets(settings: LoraSettings, pairs: Iterable[_Sides]) -> None:
    """PEFT would drop a tensor that its configuration does not target, so such a file means two things at once."""
    for pair in pairs:
        if not targets_path(settings, pair.place.layer, pair.place.path):
            raise AdapterRejected(
                "target_mismatch",
                subject=pair.a.name,
                found="tensors for a module the configuration leaves out",
                allowed="modules that target_modules, exclude_modules and layers_to_transform leave in",
            )


def targets_path(settings: LoraSettings, layer: int, path: str) -> bool:
    """Whether the configuration, as far as it is written in plain names, targets the module at `path`."""
    if any(_is_tail(name, path) for name in settings.exclude_modules):
        return False
    if settings.target_modules is None:
        return True
    if path in settings.target_modules:
        return True
    in_layers = settings.layers is None or layer in settings.layers
    return in_layers and any(_is_tail(name, path) for name in settings.target_modules)


def untouched_targets(settings: LoraSettings, pairs: tuple[Pair, ...], table: ModuleTable) -> list[str]:
    """Modules and names that the configuration targets and the file has no tensors for."""
    first = pairs[0]
    prefix = first.path.removesuffix(f"layers.{first.layer}.{first.module}")
    present = {pair.path for pair in pairs}
    paths = {f"{prefix}layers.{layer}.{module}": layer for layer in range(table.n_layers) for module in table.linears}
    if settings.target_modules is None and not settings.targets_all_linear:
        return []
    missing = [path for path, layer in paths.items() if path not in present and targets_path(settings, layer, path)]
    names = settings.target_modules or ()
    return missing + [name for name in names if not any(_is_tail(name, path) for path in paths)]


def unmatched_patterns(settings: LoraSettings, pairs: tuple[Pair, ...]) -> int:
    """How many keys of rank_pattern and alpha_pattern match no module of the file."""
    patterns = [pattern for pattern, _ in (*settings.rank_patterns, *settings.alpha_patterns)]
    return sum(not any(pattern.matches(pair.path) for pair in pairs) for pattern in patterns)


def names_same_model(name: str, table: ModuleTable) -> bool:
    """Whether two spellings may mean one model: the last part of a path or hub id, in any case."""
    return _last_part(name) == _last_part(table.base_model)


def _last_part(name: str) -> str:
    return name.rstrip("/\\").replace("\\", "/").rsplit("/", 1)[-1].casefold()


def _is_tail(name: str, path: str) -> bool:
    return path == name or path.endswith(f".{name}")


def _scaled(pair: _Sides, settings: LoraSettings) -> Pair:
    rank = pair.a.shape[0]
    scale = settings.scale_of(pair.place.path, rank)
    if scale > MAX_SCALE:
        raise AdapterRejected(
            "scaling_too_large", subject=pair.a.name, found=f"a scale of {scale:g}", allowed=f"at most {MAX_SCALE:g}"
        )
    return Pair(pair.place.layer, pair.place.module, pair.place.path, rank, scale, pair.a, pair.b)


def _check_one_spelling(named: list[_Named]) -> None:
    """With two spellings in one file, two names could mean the same matrix."""
    first = named[0]
    other = next((place for place in named if place.spelling != first.spelling), None)
    if other is not None:
        raise AdapterRejected(
            "tensor_name_invalid",
            subject=other.tensor.name,
            found="a second way of spelling names",
            allowed=f"one way for all, as in {quoted(first.tensor.name)}",
        )


def _unknown_names(names: list[str]) -> AdapterRejected:
    field = next((field for mark, field in _FEATURE_MARKS for name in names if mark in name), None)
    if field is not None:
        advice = FIELD_VERDICTS[field].reason
        found = f"tensors of it: {listed(names)}"
        return AdapterRejected("feature_unsupported", subject=field, found=found, allowed="none", advice=advice)
    return AdapterRejected(
        "tensor_name_invalid",
        subject=quoted(names[0]).strip("'"),
        found=f"{len(names)} names that are no LoRA matrix: {listed(names)}",
        allowed="base_model.model.<module>.lora_A.weight and .lora_B.weight",
    )


def _outside_names(names: list[str]) -> AdapterRejected:
    refused = [name for name in names if any(f".{outer}." in f".{name}" for outer in _OUTER_MODULES)]
    return AdapterRejected(
        "module_not_allowed" if refused else "module_unknown",
        subject=quoted((refused or names)[0]).strip("'"),
        found=f"{len(names)} tensors outside the decoder layers: {listed(refused or names)}",
        allowed=f"{', '.join(MODULES)} of a layer, under one of {', '.join(_PREFIXES)}",
        advice=f"The weights file {WEIGHTS_FILE} is made for another model or target.",
    )
