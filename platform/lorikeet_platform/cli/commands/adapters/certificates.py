"""A certificate as lines of a table, for people."""

from __future__ import annotations

from typing import Any

from lorikeet_platform.cli.commands.adapters.references import mebibytes


def certificate_rows(certificate: dict[str, Any]) -> list[tuple[str, object]]:
    """(what, how much) of a certificate's record."""
    modules, ranks = certificate["modules"], certificate["ranks"]
    return [
        ("base model", f"{certificate['base_model']} {certificate['base_model_digest'][:12]}"),
        ("configuration", certificate["config_digest"]),
        ("tensors", certificate["tensor_digest"]),
        ("modules", ", ".join(f"{module} in {layers} layers" for module, layers in modules.items())),
        ("ranks", ", ".join(f"{rank} ({pairs} pairs)" for rank, pairs in ranks.items())),
        ("in the arena", mebibytes(certificate["serving_bytes"])),
        ("effect", f"{100 * certificate['effect']:.1f} % of the base model's logits"),
        ("against PEFT", _parity(certificate)),
        ("neighbours", _neighbours(certificate)),
        ("this engine", _service(certificate)),
    ]


def certificate_summary(certificate: dict[str, Any] | None) -> str:
    """The two figures that say most, to be put after a sentence; nothing for a version without a certificate."""
    if certificate is None:
        return ""
    effect = f"effect {100 * certificate['effect']:.1f} %"
    if certificate["oracle"] != "peft":
        return f"; {effect}, not compared with PEFT"
    return f"; {effect}, within {certificate['max_logit_difference']:.1e} of PEFT's logits"


def _parity(certificate: dict[str, Any]) -> str:
    if certificate["oracle"] != "peft":
        return "not compared: the base model does not fit beside PEFT; our reference arithmetic only"
    return (
        f"logits differ by at most {certificate['max_logit_difference']:.1e} (they reach "
        f"{certificate['logit_scale']:.1f}), {100 * certificate['greedy_agreement']:.0f} % of "
        f"{certificate['n_tokens']} greedy tokens equal on {certificate['n_probes']} probes"
    )


def _neighbours(certificate: dict[str, Any]) -> str:
    tokens = "unchanged" if certificate["neighbours_unchanged"] else "CHANGED"
    return f"tokens {tokens}, logits within {certificate['neighbour_max_logit_difference']:.1e} in a mixed batch"


def _service(certificate: dict[str, Any]) -> str:
    match certificate["served_alike"]:
        case None:
            return "not asked"
        case True:
            return "same tokens alone and beside others"
        case _:
            return "OTHER tokens beside others than alone"
