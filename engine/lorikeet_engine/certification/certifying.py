"""From what the validator and the certifier found to the certificate; whoever serves adds what it saw itself."""

from __future__ import annotations

from lorikeet_adapters.certificate import VALIDATOR, Certificate
from lorikeet_adapters.sandbox.record import ValidatedRecord
from lorikeet_engine.certification.measured import Measured


def certificate_of(
    record: ValidatedRecord,
    measured: Measured,
    *,
    base_model: str,
    config_digest: str,
    serving_bytes: int,
    served_alike: bool | None,
    made_at: int,
) -> Certificate:
    """The parameters mean what the fields of that name mean."""
    return Certificate(
        config_digest=config_digest,
        tensor_digest=record.digest,
        base_model=base_model,
        base_model_digest=measured.base_model_digest,
        modules=dict(record.modules),
        ranks=dict(record.ranks),
        serving_bytes=serving_bytes,
        effect=measured.effect,
        oracle=measured.oracle,
        max_logit_difference=measured.max_logit_difference,
        logit_scale=measured.logit_scale,
        greedy_agreement=measured.greedy_agreement,
        neighbour_max_logit_difference=measured.neighbour_max_logit_difference,
        neighbours_unchanged=measured.neighbours_unchanged,
        served_alike=served_alike,
        n_probes=measured.n_probes,
        n_tokens=measured.n_tokens,
        warnings=tuple(dict.fromkeys((*record.warnings, *measured.warnings))),
        validator=VALIDATOR,
        made_at=made_at,
    )
