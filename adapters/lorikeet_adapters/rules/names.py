"""What the name of a tensor in an adapter means, in every way that PEFT and the libraries around it spell it.

PREFIX layers.N.MODULE .lora_A|.lora_B [.default] .weight
PREFIX layers.N.MODULE .lora_B [.default] .bias                                trained with lora_bias
PREFIX layers.N.MODULE .lora_magnitude_vector [.default] [.weight]             trained with use_dora

Owns the spellings and nothing else. A name that is not understood is refused with the list of all such names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from lorikeet_adapters.config.verdicts import FIELD_VERDICTS
from lorikeet_adapters.errors import AdapterRejected, listed, quoted
from lorikeet_adapters.header import TensorEntry
from lorikeet_adapters.modules import MODULES

MAX_NAME_CHARACTERS: Final = 256

# PEFT's own part of a name, left out where a library saves in its own format; patterns match what follows it.
_WRAPPER: Final = "base_model.model."
# What has been seen between it and "layers.N.": a model with a head, a bare one, and two kinds of models around one.
_INNER: Final = ("model.", "", "language_model.model.", "model.language_model.")
_PREFIX: Final = rf"(?:{re.escape(_WRAPPER)})?(?:{'|'.join(re.escape(inner) for inner in _INNER if inner)})?"
_PLACE: Final = re.compile(rf"({_PREFIX})layers\.(0|[1-9][0-9]{{0,5}})\.(.+)")
_NAME: Final = re.compile(
    r"(.+)\.(?:lora_(?P<side>[AB])(?P<a>(?:\.default)?)\.weight"
    r"|lora_B(?P<b>(?:\.default)?)\.bias"
    r"|lora_magnitude_vector(?P<m>(?:\.default)?)(?:\.weight)?)"
)
_FEATURE_MARKS: Final = (
    ("modules_to_save", "modules_to_save"),
    ("trainable_tokens", "trainable_token_indices"),
    ("base_layer.bias", "bias"),
    ("lora_diag", "kasa_config"),
    ("lora_velora", "velora_config"),
)
_OUTER_MODULES: Final = ("embed_tokens", "lm_head")


class Part(StrEnum):
    """What a tensor is to its module, as PEFT names it."""

    A = "lora_A"
    B = "lora_B"
    BIAS = "lora_B.bias"
    MAGNITUDE = "lora_magnitude_vector"


@dataclass(frozen=True, slots=True)
class NamedTensor:
    """A tensor whose name has been understood; `path` is the module's name inside the base model."""

    path: str
    layer: int
    module: str
    part: Part
    tensor: TensorEntry


def name_tensors(tensors: Iterable[TensorEntry]) -> list[NamedTensor]:
    """Every tensor with the place its name means.

    Raises:
        AdapterRejected: for names that mean nothing here, and for two ways of spelling in one adapter, since two
            names could then mean the same matrix.
    """
    named: list[NamedTensor] = []
    unknown: list[str] = []
    outside: list[str] = []
    spellings: list[tuple[str, str]] = []
    for tensor in tensors:
        name = _NAME.fullmatch(tensor.name) if len(tensor.name) <= MAX_NAME_CHARACTERS else None
        if name is None:
            unknown.append(tensor.name)
            continue
        place = _PLACE.fullmatch(name[1])
        if place is None:
            outside.append(tensor.name)
            continue
        spellings.append((place[1], name["a"] or name["b"] or name["m"] or ""))
        named.append(NamedTensor(name[1].removeprefix(_WRAPPER), int(place[2]), place[3], _part(name), tensor))
    if unknown:
        raise _unknown_names(unknown)
    if outside:
        raise _outside_names(outside)
    other = next((number for number, spelling in enumerate(spellings) if spelling != spellings[0]), None)
    if other is not None:
        raise _second_spelling(named[other].tensor.name, named[0].tensor.name)
    return named


def _part(name: re.Match[str]) -> Part:
    if name["side"] is not None:
        return Part.A if name["side"] == "A" else Part.B
    return Part.BIAS if name["b"] is not None else Part.MAGNITUDE


def _second_spelling(name: str, first: str) -> AdapterRejected:
    return AdapterRejected(
        "tensor_name_invalid",
        subject=name,
        found="a second way of spelling names",
        allowed=f"one way for all, as in {quoted(first)}",
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
        found=f"{len(names)} names that are no part of a LoRA pair: {listed(names)}",
        allowed="base_model.model.<module>.lora_A.weight and .lora_B.weight, with .lora_B.bias or "
        ".lora_magnitude_vector where the configuration says so",
    )


def _outside_names(names: list[str]) -> AdapterRejected:
    refused = [name for name in names if any(f".{outer}." in f".{name}" for outer in _OUTER_MODULES)]
    prefixes = ", ".join(_WRAPPER + inner for inner in _INNER)
    return AdapterRejected(
        "module_not_allowed" if refused else "module_unknown",
        subject=quoted((refused or names)[0]).strip("'"),
        found=f"{len(names)} tensors outside the decoder layers: {listed(refused or names)}",
        allowed=f"{', '.join(MODULES)} of a layer, under one of {prefixes}",
        advice="The weights are made for another model or target.",
    )
