"""From the tensors of an adapter to the pairs that are served, as ordered checks; no weight is read here.

Each check is one function that raises AdapterRejected; `find_pairs` runs them in order. The tensors are the truth
about which modules an adapter has; the configuration may not contradict them, and names beyond them are a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lorikeet_adapters.config.settings import LoraSettings
from lorikeet_adapters.errors import AdapterRejected, listed, quoted
from lorikeet_adapters.header import TensorEntry
from lorikeet_adapters.manifest import BIAS, DORA, MAX_RANK
from lorikeet_adapters.modules import MODULES, ModuleTable
from lorikeet_adapters.rules.names import NamedTensor, Part, name_tensors

MAX_SCALE: Final = 64.0


@dataclass(frozen=True, slots=True)
class Pair:
    """The matrices of one module, and its vector if it has one, with the rank and scale they are served with."""

    layer: int
    module: str
    path: str
    rank: int
    scale: float
    a: TensorEntry
    b: TensorEntry
    vector: TensorEntry | None
    kind: int


@dataclass(frozen=True, slots=True)
class Parts:
    """The tensors of one module before their shapes are known to fit."""

    place: NamedTensor
    a: TensorEntry
    b: TensorEntry
    vector: TensorEntry | None


def find_pairs(
    settings: LoraSettings, tensors: Sequence[TensorEntry], table: ModuleTable, max_rank: int
) -> tuple[Pair, ...]:
    """Every pair of the adapter in canonical order: by layer, then in the order of MODULES."""
    check_rank_limit(settings, max_rank)
    check_dtype(tensors)
    named = name_tensors(tensors)
    check_places(named, table)
    modules = put_together(named, settings)
    for parts in modules:
        check_shapes(parts, table)
        check_rank(parts, settings, max_rank, table)
        check_target(parts, settings)
    return tuple(_scaled(parts, settings) for parts in modules)


def check_rank_limit(settings: LoraSettings, max_rank: int) -> None:
    """No rank the configuration names may exceed the platform's maximum."""
    if settings.max_rank > min(max_rank, MAX_RANK):
        raise AdapterRejected(
            "rank_too_large",
            subject="r" if settings.rank == settings.max_rank else "rank_pattern",
            found=str(settings.max_rank),
            allowed=f"at most {min(max_rank, MAX_RANK)}",
        )


def check_dtype(tensors: Sequence[TensorEntry]) -> None:
    """One element type for the whole adapter."""
    first = tensors[0].dtype
    other = next((tensor for tensor in tensors if tensor.dtype != first), None)
    if other is not None:
        raise AdapterRejected(
            "dtype_unsupported",
            subject=quoted(other.name).strip("'"),
            found=other.dtype,
            allowed=f"one dtype for all tensors, here {first}",
        )


def check_places(named: Iterable[NamedTensor], table: ModuleTable) -> None:
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


def put_together(named: Iterable[NamedTensor], settings: LoraSettings) -> tuple[Parts, ...]:
    """A and B of every module, each once, with exactly the vector that the configuration promises."""
    places: dict[tuple[int, int], dict[Part, NamedTensor]] = {}
    for item in named:
        parts = places.setdefault((item.layer, MODULES.index(item.module)), {})
        if item.part in parts:
            raise AdapterRejected(
                "tensor_name_invalid",
                subject=item.tensor.name,
                found=f"a second name for what {quoted(parts[item.part].tensor.name)} is",
                allowed="one name for each tensor",
            )
        parts[item.part] = item
    return tuple(_parts(parts, settings) for _, parts in sorted(places.items()))


def _parts(found: Mapping[Part, NamedTensor], settings: LoraSettings) -> Parts:
    first = next(iter(found.values()))
    for part in (Part.A, Part.B):
        if part not in found:
            raise AdapterRejected(
                "pair_incomplete", subject=first.tensor.name, found=f"no {part} beside it", allowed="one A and one B"
            )
    vector = None
    for part, field, on in (
        (Part.BIAS, "lora_bias", settings.lora_bias),
        (Part.MAGNITUDE, "use_dora", settings.use_dora),
    ):
        if part in found and not on:
            raise AdapterRejected(
                "vector_mismatch",
                subject=found[part].tensor.name,
                found=f"a {part} without {field} in the configuration",
                allowed=f"none, or {field}: true",
                advice="PEFT would leave the tensor out.",
            )
        if on and part not in found:
            raise AdapterRejected(
                "vector_mismatch",
                subject=found[Part.B].tensor.name,
                found=f"no {part} beside it",
                allowed=f"one for every pair, since the configuration says {field}",
            )
        vector = found[part].tensor if on else vector
    return Parts(found[Part.A], found[Part.A].tensor, found[Part.B].tensor, vector)


def check_shapes(parts: Parts, table: ModuleTable) -> None:
    """A is [rank, in], B is [out, rank] and a vector is [out] for this module of this base model."""
    linear = table.linears[parts.place.module]
    for tensor, n_dimensions in ((parts.a, 2), (parts.b, 2), (parts.vector, 1)):
        if tensor is not None and len(tensor.shape) != n_dimensions:
            raise AdapterRejected(
                "shape_invalid",
                subject=tensor.name,
                found=f"shape {list(tensor.shape)}",
                allowed="two dimensions" if n_dimensions == 2 else f"[{linear.out_features}]",
            )
    for tensor, axis, width, wanted in (
        (parts.a, 1, linear.in_features, f"[rank, {linear.in_features}]"),
        (parts.b, 0, linear.out_features, f"[{linear.out_features}, rank]"),
        (parts.vector, 0, linear.out_features, f"[{linear.out_features}]"),
    ):
        if tensor is not None and tensor.shape[axis] != width:
            raise AdapterRejected(
                "base_model_mismatch",
                subject=tensor.name,
                found=f"shape {list(tensor.shape)}",
                allowed=f"{wanted} for {table.base_model}",
                advice="The adapter was trained on another base model.",
            )
    if parts.a.shape[0] != parts.b.shape[1]:
        raise AdapterRejected(
            "rank_mismatch",
            subject=parts.b.name,
            found=f"rank {parts.b.shape[1]}",
            allowed=f"the rank of its A, {parts.a.shape[0]}",
        )


def check_rank(parts: Parts, settings: LoraSettings, max_rank: int, table: ModuleTable) -> None:
    """The rank of the tensors is the configured one, not above the maximum, and one that PEFT can load."""
    rank = parts.a.shape[0]
    configured = settings.rank_of(parts.place.path)
    if rank != configured:
        raise AdapterRejected(
            "rank_mismatch",
            subject=parts.a.name,
            found=f"rank {rank}",
            allowed=f"{configured}, which r and rank_pattern give this module",
        )
    if rank > max_rank:
        raise AdapterRejected("rank_too_large", subject=parts.a.name, found=str(rank), allowed=f"at most {max_rank}")
    linear = table.linears[parts.place.module]
    if settings.initialisation == "orthogonal" and rank % 2:
        allowed = "an even rank, which PEFT needs for init_lora_weights: orthogonal"
    elif settings.initialisation == "mica" and rank > min(linear.in_features, linear.out_features):
        allowed = "a rank no larger than the module, which PEFT needs for init_lora_weights: mica"
    else:
        return
    raise AdapterRejected("rank_invalid", subject=parts.a.name, found=f"rank {rank}", allowed=allowed)


def check_target(parts: Parts, settings: LoraSettings) -> None:
    """PEFT would drop a tensor that its configuration does not target, so such a file means two things at once."""
    if not settings.targets.include(parts.place.path):
        raise AdapterRejected(
            "target_mismatch",
            subject=parts.a.name,
            found="tensors for a module the configuration leaves out",
            allowed="modules that target_modules, exclude_modules and layers_to_transform leave in",
        )


def _scaled(parts: Parts, settings: LoraSettings) -> Pair:
    rank = parts.a.shape[0]
    scale = settings.scale_of(parts.place.path, rank)
    if scale > MAX_SCALE:
        raise AdapterRejected(
            "scaling_too_large", subject=parts.a.name, found=f"a scale of {scale:g}", allowed=f"at most {MAX_SCALE:g}"
        )
    kind = BIAS if settings.lora_bias else DORA if settings.use_dora else 0
    place = parts.place
    return Pair(place.layer, place.module, place.path, rank, scale, parts.a, parts.b, parts.vector, kind)
