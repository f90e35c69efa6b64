"""The verdict on every field of PEFT's LoraConfig.

A field is served exactly, or irrelevant to the answer, or refused by name; none is passed over. Owns the table and the
refusal; what the values of the served fields must look like is the business of `settings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from lorikeet_adapters.errors import AdapterRejected, quoted


class Verdict(StrEnum):
    """How a configuration field is treated."""

    EXACT = "exact"  # the value changes the answer and is honoured
    IRRELEVANT = "irrelevant"  # no value that PEFT loads changes the answer
    REFUSED = "refused"  # any value but those that switch it off in PEFT is refused by name


@dataclass(frozen=True, slots=True)
class FieldVerdict:
    """The verdict on one field, with its reason in a sentence; `off` are the values of a refused field that pass.

    PEFT takes an empty object for some features as an order to switch them on with their defaults, so that what is
    off is said for each field.
    """

    verdict: Verdict
    reason: str
    off: tuple[object, ...] = ()


def _exact(reason: str) -> FieldVerdict:
    return FieldVerdict(Verdict.EXACT, reason)


def _irrelevant(reason: str) -> FieldVerdict:
    return FieldVerdict(Verdict.IRRELEVANT, reason)


def _refused(reason: str, *off: object) -> FieldVerdict:
    return FieldVerdict(Verdict.REFUSED, reason, (None, *off))


FIELD_VERDICTS: Final[Mapping[str, FieldVerdict]] = MappingProxyType(
    {
        "alora_invocation_tokens": _refused("Activated LoRA switches the adapter on in the middle of a prompt."),
        "alpha_pattern": _exact("The scale of each module uses its own alpha, matched as PEFT matches it."),
        "arrow_config": _refused("Arrow routes each token among several adapters."),
        "auto_mapping": _irrelevant("It tells PEFT which Python class to import, and nothing here follows it."),
        "base_model_name_or_path": _irrelevant(
            "PEFT applies an adapter to the model it is given; the shapes must fit, and another name is a warning."
        ),
        "bias": _exact("Only 'none' is served, since other values train the biases of the base model."),
        "corda_config": _irrelevant("It steers an initialisation that init_lora_weights refuses."),
        "ensure_weight_tying": _refused("It ties adapters of the embedding and the output layer.", False),
        "eva_config": _irrelevant(
            "It steers the initialisation before training, which leaves the base model as it is."
        ),
        "exclude_modules": _exact("A file with tensors for a module that PEFT would leave out is refused."),
        "fan_in_fan_out": _refused("It means transposed base weights, which no served model has.", False),
        "inference_mode": _irrelevant("It only switches training off."),
        "init_lora_weights": _exact(
            "Initialisations that leave the base model as it is are served; others are refused."
        ),
        "kasa_config": _refused("KaSA cuts singular components out of the base weights."),
        "layer_replication": _refused("It stacks the layers of the base model anew.", []),
        "layers_pattern": _exact("It says where PEFT finds the layer's number for layers_to_transform."),
        "layers_to_transform": _exact("A file with tensors for a layer that PEFT would leave out is refused."),
        "loftq_config": _irrelevant("It steers an initialisation that init_lora_weights refuses."),
        "lora_alpha": _exact("The scale of every module is alpha / r, or alpha / sqrt(r) with rsLoRA."),
        "lora_bias": _exact("Every pair then has a trained bias, which the scale multiplies."),
        "lora_dropout": _irrelevant("Dropout is active in training only."),
        "lora_ga_config": _irrelevant("It steers an initialisation that init_lora_weights refuses."),
        "megatron_config": _refused("It belongs to Megatron's parallel layers.", {}),
        "megatron_core": _irrelevant("It is only a module name that counts together with megatron_config."),
        "modules_to_save": _refused("It replaces whole modules of the base model.", []),
        "monteclora_config": _refused("MonteCLoRA samples perturbations of the weights."),
        "peft_type": _exact("Only 'LORA' is served."),
        "peft_version": _irrelevant("It records which version wrote the file."),
        "qalora_group_size": _irrelevant("It counts together with use_qalora only."),
        "r": _exact("The rank is checked against the tensors of every module."),
        "rank_pattern": _exact("Every module has its own rank, matched as PEFT matches it."),
        "revision": _irrelevant("It names the base model's version for a download, and nothing is fetched here."),
        "runtime_config": _irrelevant("It tells where PEFT computes; PEFT neither saves nor reads it."),
        "target_modules": _exact("A file with tensors for a module that PEFT would leave out is refused."),
        "target_parameters": _refused("It adapts parameters that are not linear modules."),
        "task_type": _exact("Only CAUSAL_LM or null is served; other tasks add heads to the model."),
        "trainable_token_indices": _refused("It replaces rows of the token embedding."),
        "use_bdlora": _refused("Block-diagonal LoRA has another arithmetic."),
        "use_dora": _exact("Every pair then has a magnitude, which rescales what the module gives."),
        "use_qalora": _refused("QALoRA pools the inputs in groups.", False),
        "use_rslora": _exact("The scale is alpha / sqrt(r) when it is true."),
        "velora_config": _refused("VeLoRA brings its own layer, not proven equal here."),
    }
)

# PEFT drops fields that it does not know; one that says nothing may be dropped here as well.
_SAYS_NOTHING: Final[tuple[object, ...]] = (None, False, "", [], {})
# PEFT passes every field of the file to Python as a keyword argument, and cannot load a file with these.
_RESERVED: Final = ("self", "cls")


def check_field(name: str, value: object) -> None:
    """Refuse a field that is on and not served, known or not."""
    verdict = FIELD_VERDICTS.get(name)
    if verdict is None:
        if name in _RESERVED or not _is_one_of(value, _SAYS_NOTHING):
            raise AdapterRejected(
                "feature_unsupported",
                subject=quoted(name).strip("'"),
                found=quoted(value),
                allowed="null, false or empty",
                advice="This field of the configuration is not known here.",
            )
    elif verdict.verdict is Verdict.REFUSED and not _is_one_of(value, verdict.off):
        raise AdapterRejected(
            "feature_unsupported",
            subject=name,
            found=quoted(value),
            allowed=" or ".join(_OFF_NAMES[repr(off)] for off in verdict.off),
            advice=verdict.reason,
        )


_OFF_NAMES: Final = {"None": "null", "False": "false", "[]": "[]", "{}": "{}"}


def _is_one_of(value: object, allowed: tuple[object, ...]) -> bool:
    # Equality alone would take 0 for false.
    return any(type(value) is type(item) and value == item for item in allowed)
