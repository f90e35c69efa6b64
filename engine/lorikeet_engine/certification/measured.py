"""What was measured of one adapter, and what of it an adapter must not fail. A record; needs no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from lorikeet_adapters.certificate import NEIGHBOUR_TOLERANCE, PARITY_TOLERANCE, Oracle


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The measured part of a certificate; the fields mean what they mean there.

    Attributes:
        own_max_logit_difference: like that of the neighbours, between the adapter's own lines in company and alone.
        own_unchanged: those lines' tokens in company are those alone.
    """

    base_model_digest: str
    effect: float
    oracle: Oracle
    max_logit_difference: float | None
    logit_scale: float | None
    greedy_agreement: float | None
    own_max_logit_difference: float
    own_unchanged: bool
    neighbour_max_logit_difference: float
    neighbours_unchanged: bool
    n_probes: int
    n_tokens: int
    warnings: tuple[str, ...]

    def as_record(self) -> dict[str, Any]:
        return asdict(self) | {"warnings": list(self.warnings)}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Measured:
        """The inverse of `as_record`, of a record that another process made.

        Raises:
            ValueError: it does not have the form of one.
        """
        names = {field.name for field in fields(cls)}
        if record.keys() != names or not all(_is_sound(name, record[name]) for name in names):
            raise ValueError("this is no record of measurements")
        has_parity = record["oracle"] == "peft"
        if any((record[name] is None) == has_parity for name in _PARITY):
            raise ValueError(f"measurements by {record['oracle']} have or lack the comparison with PEFT")
        return cls(**{**record, "warnings": tuple(record["warnings"])})


_PARITY = ("max_logit_difference", "logit_scale", "greedy_agreement")


def _is_sound(name: str, value: object) -> bool:
    match name:
        case "base_model_digest":
            return isinstance(value, str) and len(value) == 64
        case "oracle":
            return value in ("peft", "reference_ops")
        case "neighbours_unchanged" | "own_unchanged":
            return isinstance(value, bool)
        case "n_probes" | "n_tokens":
            return type(value) is int and value > 0
        case "warnings":
            return isinstance(value, list) and all(isinstance(line, str) for line in value)
        case _:
            is_left_out = value is None and name in _PARITY
            return is_left_out or (type(value) in (int, float) and math.isfinite(float(str(value))))


def failures(measured: Measured) -> tuple[str, ...]:
    """Why this adapter must not be served, a sentence for each reason; empty when it may."""
    difference, scale = measured.max_logit_difference, measured.logit_scale
    if difference is None or scale is None or difference <= PARITY_TOLERANCE * scale:
        return ()
    sentence = (
        f"its logits differ from PEFT's by {difference:.3g}, allowed: {PARITY_TOLERANCE:g} of the largest, "
        f"{PARITY_TOLERANCE * scale:.3g}"
    )
    return (sentence,)


def disturbances(measured: Measured) -> tuple[str, ...]:
    """What is otherwise in a mixed batch than alone. No file can be at fault for that: the engine's code is."""
    found = []
    for whose, difference, is_unchanged in (
        ("its neighbours'", measured.neighbour_max_logit_difference, measured.neighbours_unchanged),
        ("its own", measured.own_max_logit_difference, measured.own_unchanged),
    ):
        if difference > NEIGHBOUR_TOLERANCE:
            found.append(
                f"{whose} logits in a mixed batch differ from those alone by {difference:.3g} of the largest, "
                f"allowed: {NEIGHBOUR_TOLERANCE:g}"
            )
        if not is_unchanged:
            found.append(f"{whose} tokens in a mixed batch are not those alone")
    return tuple(found)
