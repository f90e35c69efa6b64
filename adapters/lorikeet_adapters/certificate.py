"""The certificate of a version: what was measured before it was served. A record; nothing is computed here.

identity   digests of the configuration, the tensors and the base model
shape      touched modules, ranks, bytes in the arena
parity     our arithmetic against transformers + PEFT in float32, on fixed probe prompts
company    a mixed batch: what the adapter's neighbours answer with it and without it
service    the same through the engine that will serve it
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Literal

VALIDATOR: Final = "1"  # counts up when a check or a figure changes its meaning

# Both are shares of the largest logit. Sums in float32, taken in another order, differ by some millionths of it.
NEIGHBOUR_TOLERANCE: Final = 1e-4
PARITY_TOLERANCE: Final = 1e-4

Oracle = Literal["peft", "reference_ops"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What is known of one version.

    Attributes:
        config_digest: SHA-256 of adapter_config.json as uploaded.
        tensor_digest: SHA-256 of the normalised file, the adapter's identity.
        base_model_digest: of the base model's configuration and weights.
        modules: how many layers have a pair, by module.
        ranks: how many pairs have which rank; keys are decimal text, as in JSON.
        serving_bytes: in the arena of the engine that serves it.
        effect: root mean square of (adapter's logits - base model's) over that of the base model's, on the probes.
        oracle: "reference_ops" when the base model did not fit beside PEFT: then nothing below it was compared.
        max_logit_difference: largest |ours - PEFT's| in float32 over all probe positions; None without PEFT.
        logit_scale: largest |PEFT's logit| on the probes, to read the difference by; None without PEFT.
        greedy_agreement: share of the probes' greedy tokens that are PEFT's; None without PEFT.
        neighbour_max_logit_difference: largest difference of a neighbour's logits in the mixed batch and alone, as a
            share of the largest of its logits; the adapter itself counts as one.
        neighbours_unchanged: every neighbour's greedy tokens are the same in the mixed batch and alone; of logits in a
            tie, either may be chosen.
        served_alike: the serving engine gave the same tokens to the adapter and its neighbours alone and together;
            None when no engine was asked.
        n_probes, n_tokens: probe prompts, and their greedy tokens together.
        made_at: microseconds since 1970.
    """

    config_digest: str
    tensor_digest: str
    base_model: str
    base_model_digest: str
    modules: Mapping[str, int]
    ranks: Mapping[str, int]
    serving_bytes: int
    effect: float
    oracle: Oracle
    max_logit_difference: float | None
    logit_scale: float | None
    greedy_agreement: float | None
    neighbour_max_logit_difference: float
    neighbours_unchanged: bool
    served_alike: bool | None
    n_probes: int
    n_tokens: int
    warnings: tuple[str, ...]
    validator: str
    made_at: int

    def as_record(self) -> dict[str, Any]:
        """For a JSON column."""
        return asdict(self) | {"warnings": list(self.warnings)}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Certificate:
        """The inverse of `as_record`; raises KeyError for a record that lacks a field."""
        values = {field.name: record[field.name] for field in fields(cls)}
        return cls(**values | {"warnings": tuple(record["warnings"])})
