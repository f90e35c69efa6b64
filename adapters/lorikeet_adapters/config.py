"""The verdict on every field of PEFT's LoraConfig, and the settings of an adapter that we serve.

A field is served exactly, or irrelevant to the answer, or refused by name; none is passed over. Owns no tensors: what
an adapter really contains is read from its file by `rules`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, TypeGuard

from lorikeet_adapters import strict_json
from lorikeet_adapters.errors import AdapterRejected, RejectCode, quoted
from lorikeet_adapters.files import CONFIG_FILE
from lorikeet_adapters.patterns import LiteralPattern, parse_pattern

MAX_CONFIG_BYTES: Final = 64 << 10
MAX_ALPHA: Final = 4096
MAX_PATTERNS: Final = 16_384
MAX_TARGETS: Final = 16_384


class Verdict(StrEnum):
    """How a configuration field is treated."""

    EXACT = "exact"  # the value changes the answer and is honoured
    IRRELEVANT = "irrelevant"  # no value changes the answer
    REFUSED = "refused"  # any value but null, false or empty is refused by name


@dataclass(frozen=True, slots=True)
class FieldVerdict:
    """The verdict on one field, with its reason in a sentence."""

    verdict: Verdict
    reason: str


def _exact(reason: str) -> FieldVerdict:
    return FieldVerdict(Verdict.EXACT, reason)


def _irrelevant(reason: str) -> FieldVerdict:
    return FieldVerdict(Verdict.IRRELEVANT, reason)


def _refused(reason: str) -> FieldVerdict:
    return FieldVerdict(Verdict.REFUSED, reason)


FIELD_VERDICTS: Final[Mapping[str, FieldVerdict]] = MappingProxyType(
    {
        "alora_invocation_tokens": _refused("Activated LoRA switches the adapter on in the middle of a prompt."),
        "alpha_pattern": _exact("The scale of each module uses its own alpha, matched as PEFT matches it."),
        "arrow_config": _refused("Arrow routes each token among several adapters."),
        "auto_mapping": _irrelevant("It tells PEFT which Python class to import, and nothing here follows it."),
        "base_model_name_or_path": _irrelevant("The shapes of the tensors decide; another name is a warning."),
        "bias": _exact("Only 'none' is served, since other values train the biases of the base model."),
        "corda_config": _irrelevant("It steers the initialisation before training; init_lora_weights decides."),
        "ensure_weight_tying": _refused("It ties adapters of the embedding and the output layer."),
        "eva_config": _irrelevant(
            "It steers the initialisation before training, which leaves the base model as it is."
        ),
        "exclude_modules": _irrelevant("The tensors in the file are the truth; a list that contradicts is refused."),
        "fan_in_fan_out": _refused("It means transposed base weights, which no served model has."),
        "inference_mode": _irrelevant("It only switches training off."),
        "init_lora_weights": _exact(
            "Initialisations that leave the base model as it is are served; others are refused."
        ),
        "kasa_config": _refused("KaSA cuts singular components out of the base weights."),
        "layer_replication": _refused("It stacks the layers of the base model anew."),
        "layers_pattern": _irrelevant("The tensors in the file are the truth."),
        "layers_to_transform": _irrelevant(
            "The tensors in the file are the truth; a list that contradicts is refused."
        ),
        "loftq_config": _irrelevant("It steers the initialisation before training; init_lora_weights decides."),
        "lora_alpha": _exact("The scale of every module is alpha / r, or alpha / sqrt(r) with rsLoRA."),
        "lora_bias": _refused("It adds a trained bias to every adapted module."),
        "lora_dropout": _irrelevant("Dropout is active in training only."),
        "lora_ga_config": _irrelevant("It steers the initialisation before training; init_lora_weights decides."),
        "megatron_config": _refused("It belongs to Megatron's parallel layers."),
        "megatron_core": _irrelevant("It is only a module name that counts together with megatron_config."),
        "modules_to_save": _refused("It replaces whole modules of the base model."),
        "monteclora_config": _refused("MonteCLoRA samples perturbations of the weights."),
        "peft_type": _exact("Only 'LORA' is served."),
        "peft_version": _irrelevant("It records which version wrote the file."),
        "qalora_group_size": _irrelevant("It counts together with use_qalora only."),
        "r": _exact("The rank is checked against the tensors of every module."),
        "rank_pattern": _exact("Every module has its own rank, matched as PEFT matches it."),
        "revision": _irrelevant("The shapes of the tensors decide; nothing is fetched."),
        "runtime_config": _irrelevant("It tells where PEFT computes; PEFT neither saves nor reads it."),
        "target_modules": _irrelevant("The tensors in the file are the truth; a list that contradicts is refused."),
        "target_parameters": _refused("It adapts parameters that are not linear modules."),
        "task_type": _exact("Only CAUSAL_LM or null is served; other tasks add heads to the model."),
        "trainable_token_indices": _refused("It replaces rows of the token embedding."),
        "use_bdlora": _refused("Block-diagonal LoRA has another arithmetic."),
        "use_dora": _refused("DoRA rescales every output by a trained magnitude."),
        "use_qalora": _refused("QALoRA pools the inputs in groups."),
        "use_rslora": _exact("The scale is alpha / sqrt(r) when it is true."),
        "velora_config": _refused("VeLoRA brings its own layer, not proven equal here."),
    }
)

# Initialisations after which the base model is still the one that is served.
_HARMLESS_INITS: Final = ("gaussian", "eva", "orthogonal", "mica")


@dataclass(frozen=True, slots=True)
class LoraSettings:
    """What the configuration says about an adapter that is served exactly."""

    rank: int
    alpha: float
    use_rslora: bool
    rank_patterns: tuple[tuple[LiteralPattern, int], ...]
    alpha_patterns: tuple[tuple[LiteralPattern, float], ...]
    # A list of names, or None when PEFT would choose or match by a regular expression, which is never executed here.
    target_modules: tuple[str, ...] | None
    targets_all_linear: bool
    exclude_modules: tuple[str, ...]
    layers: tuple[int, ...] | None
    base_model_name: str | None
    task_type: str | None

    def rank_of(self, path: str) -> int:
        """The rank PEFT gives the module at `path` (its name inside the base model)."""
        return next((rank for pattern, rank in self.rank_patterns if pattern.matches(path)), self.rank)

    def scale_of(self, path: str, rank: int) -> float:
        """The factor of B·A for the module at `path`, computed as PEFT does."""
        alpha = next((alpha for pattern, alpha in self.alpha_patterns if pattern.matches(path)), self.alpha)
        return alpha / math.sqrt(rank) if self.use_rslora else alpha / rank

    @property
    def max_rank(self) -> int:
        """The largest rank the configuration names."""
        return max([self.rank, *(rank for _, rank in self.rank_patterns)])

    def as_record(self) -> dict[str, object]:
        """The fields that decide the answer, under PEFT's names, for the record of a version."""
        return {
            "peft_type": "LORA",
            "task_type": self.task_type,
            "base_model_name_or_path": self.base_model_name,
            "r": self.rank,
            "lora_alpha": self.alpha,
            "use_rslora": self.use_rslora,
            "rank_pattern": {pattern.text: rank for pattern, rank in self.rank_patterns},
            "alpha_pattern": {pattern.text: alpha for pattern, alpha in self.alpha_patterns},
            "target_modules": None if self.target_modules is None else sorted(self.target_modules),
        }


def read_config(data: bytes) -> LoraSettings:
    """The settings in an adapter_config.json; raises AdapterRejected for a field that cannot be served exactly."""
    if len(data) > MAX_CONFIG_BYTES:
        raise AdapterRejected(
            "adapter_too_large", subject=CONFIG_FILE, found=f"{len(data)} bytes", allowed=f"at most {MAX_CONFIG_BYTES}"
        )
    fields = _parse(data)
    for name, value in fields.items():
        _check_verdict(name, value)
    _check_choices(fields)
    return LoraSettings(
        rank=_rank("r", _required(fields, "r")),
        alpha=_alpha("lora_alpha", _required(fields, "lora_alpha")),
        use_rslora=_flag(fields, "use_rslora"),
        rank_patterns=tuple(
            (pattern, _rank("rank_pattern", value)) for pattern, value in _patterns(fields, "rank_pattern")
        ),
        alpha_patterns=tuple(
            (pattern, _alpha("alpha_pattern", value)) for pattern, value in _patterns(fields, "alpha_pattern")
        ),
        target_modules=_names(fields, "target_modules"),
        targets_all_linear=fields.get("target_modules") == "all-linear",
        exclude_modules=_names(fields, "exclude_modules") or (),
        layers=_layers(fields),
        base_model_name=_text(fields, "base_model_name_or_path"),
        task_type=_text(fields, "task_type"),
    )


def _parse(data: bytes) -> dict[str, object]:
    try:
        value = strict_json.loads(data, max_depth=8)
    except strict_json.StrictJsonError as error:
        raise _rejected("config_invalid", CONFIG_FILE, f"{error.code} ({error.message})", "strict JSON") from None
    if not isinstance(value, dict):
        raise _rejected("config_invalid", CONFIG_FILE, "no object", "one JSON object")
    return value


def _check_verdict(name: str, value: object) -> None:
    verdict = FIELD_VERDICTS.get(name)
    if _is_empty(value) or (verdict is not None and verdict.verdict is not Verdict.REFUSED):
        return
    if verdict is None:
        raise AdapterRejected(
            "feature_unsupported",
            subject=quoted(name).strip("'"),
            found=quoted(value),
            allowed="null, false or empty",
            advice="This field of the configuration is not known here.",
        )
    allowed = "null, false or empty"
    raise AdapterRejected(
        "feature_unsupported", subject=name, found=quoted(value), allowed=allowed, advice=verdict.reason
    )


def _is_empty(value: object) -> bool:
    return value is None or value is False or value in ("", [], {})


def _check_choices(fields: Mapping[str, object]) -> None:
    if fields.get("peft_type") != "LORA":
        raise _rejected("feature_unsupported", "peft_type", quoted(fields.get("peft_type")), "'LORA'")
    if fields.get("task_type") not in (None, "CAUSAL_LM"):
        raise _rejected("feature_unsupported", "task_type", quoted(fields["task_type"]), "'CAUSAL_LM' or null")
    if fields.get("bias") not in (None, "none"):
        reason = FIELD_VERDICTS["bias"].reason
        found = quoted(fields["bias"])
        raise AdapterRejected("feature_unsupported", subject="bias", found=found, allowed="'none'", advice=reason)
    init = fields.get("init_lora_weights")
    if init is None or isinstance(init, bool) or (isinstance(init, str) and init.lower() in _HARMLESS_INITS):
        return
    raise AdapterRejected(
        "feature_unsupported",
        subject="init_lora_weights",
        found=quoted(init),
        allowed=f"true, false, {', '.join(_HARMLESS_INITS)}",
        advice="This initialisation changes the base weights. Convert the adapter: "
        "save_pretrained(..., path_initial_model_for_weight_conversion=...).",
    )


def _required(fields: Mapping[str, object], name: str) -> object:
    if name not in fields:
        raise _rejected("config_invalid", name, "no value", "a number, as PEFT writes it")
    return fields[name]


def _rank(name: str, value: object) -> int:
    if type(value) is not int or value < 1:
        raise _rejected("rank_invalid", name, quoted(value), "a whole number of at least 1")
    return value


def _alpha(name: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= MAX_ALPHA:
        raise _rejected("alpha_invalid", name, quoted(value), f"a number above 0 and at most {MAX_ALPHA}")
    return value


def _flag(fields: Mapping[str, object], name: str) -> bool:
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise _rejected("config_invalid", name, quoted(value), "true or false")
    return bool(value)


def _text(fields: Mapping[str, object], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise _rejected("config_invalid", name, quoted(value), "text or null")
    return value


def _patterns(fields: Mapping[str, object], name: str) -> list[tuple[LiteralPattern, object]]:
    value = fields.get(name)
    if value is None:
        return []
    if not isinstance(value, dict) or len(value) > MAX_PATTERNS:
        raise _rejected("config_invalid", name, quoted(value), f"an object of at most {MAX_PATTERNS} names")
    return [(parse_pattern(name, key), item) for key, item in value.items()]


def _names(fields: Mapping[str, object], name: str) -> tuple[str, ...] | None:
    value = fields.get(name)
    if value is None or isinstance(value, str):
        return None
    if not _are_names(value) or len(value) > MAX_TARGETS:
        raise _rejected("config_invalid", name, quoted(value), f"text, null or a list of at most {MAX_TARGETS} names")
    return tuple(value)


def _are_names(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _layers(fields: Mapping[str, object]) -> tuple[int, ...] | None:
    """The layers PEFT would adapt, or None when the configuration does not restrict them in terms we know."""
    value = fields.get("layers_to_transform")
    listed = value if isinstance(value, list) else [] if value is None else [value]
    if not all(type(item) is int for item in listed):
        raise _rejected(
            "config_invalid", "layers_to_transform", quoted(value), "a whole number, a list of them or null"
        )
    if not listed or fields.get("layers_pattern") not in (None, "", [], "layers", ["layers"]):
        return None
    return tuple(listed)


def _rejected(code: RejectCode, subject: str, found: str, allowed: str) -> AdapterRejected:
    return AdapterRejected(code, subject=subject, found=found, allowed=allowed)
