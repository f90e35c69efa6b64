"""The settings of an adapter that we serve, read from its adapter_config.json.

Takes nothing that PEFT itself would not load, and nothing that the table of verdicts refuses. Owns no tensors: what
an adapter really contains is read from its weights by `rules`. Reading a configuration evaluates no expression in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeGuard

from lorikeet_adapters import strict_json
from lorikeet_adapters.config.patterns import Pattern, RegularPattern, check_expression, check_length, parse_pattern
from lorikeet_adapters.config.targets import DEFAULT_TARGETS, Targets
from lorikeet_adapters.config.verdicts import FIELD_VERDICTS, check_field
from lorikeet_adapters.errors import SHOWN_CHARACTERS, AdapterRejected, RejectCode, quoted
from lorikeet_adapters.files import CONFIG_FILE

MAX_CONFIG_BYTES: Final = 64 << 10
MAX_ALPHA: Final = 4096
MAX_NAMES: Final = 4096
MAX_EXPRESSIONS: Final = 128
SHOWN_NAMES: Final = 64
MAX_WHOLE: Final = 1 << 53  # beyond it, readers of JSON no longer agree

# Initialisations after which the base model is still the one that is served, spelled as PEFT accepts them.
_ANY_CASE_INITS: Final = ("gaussian", "mica")
_LOWER_CASE_INITS: Final = ("eva", "orthogonal")


@dataclass(frozen=True, slots=True)
class LoraSettings:
    """What the configuration says about an adapter that is served exactly.

    Attributes:
        starts_random: PEFT leaves random numbers in a module that has no tensors.
        names_targets: `targets` are the configuration's own, not PEFT's default.
    """

    rank: int
    alpha: float
    use_rslora: bool
    lora_bias: bool
    use_dora: bool
    initialisation: str
    starts_random: bool
    rank_patterns: tuple[tuple[Pattern, int], ...]
    alpha_patterns: tuple[tuple[Pattern, float], ...]
    targets: Targets
    names_targets: bool
    base_model_name: str | None
    task_type: str | None

    def check_expressions(self) -> None:
        """Refuse an expression that Python cannot read; none is evaluated."""
        for field, patterns in (("rank_pattern", self.rank_patterns), ("alpha_pattern", self.alpha_patterns)):
            for pattern, _ in patterns:
                if isinstance(pattern, RegularPattern):
                    check_expression(field, pattern.text, pattern.expression)
        self.targets.check_expressions()

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


def read_config(data: bytes) -> LoraSettings:
    """The settings in an adapter_config.json; raises AdapterRejected for a field that cannot be served exactly."""
    if len(data) > MAX_CONFIG_BYTES:
        raise AdapterRejected(
            "adapter_too_large", subject=CONFIG_FILE, found=f"{len(data)} bytes", allowed=f"at most {MAX_CONFIG_BYTES}"
        )
    fields = _parse(data)
    for name, value in fields.items():
        check_field(name, value)
    _check_kind(fields)
    _check_ignored(fields)
    settings = LoraSettings(
        rank=_rank("r", _required(fields, "r")),
        alpha=_alpha("lora_alpha", _required(fields, "lora_alpha")),
        use_rslora=_flag(fields, "use_rslora"),
        lora_bias=_flag(fields, "lora_bias"),
        use_dora=_flag(fields, "use_dora"),
        initialisation=_initialisation(fields),
        starts_random=not fields.get("init_lora_weights", True),
        rank_patterns=tuple((key, _rank("rank_pattern", value)) for key, value in _patterns(fields, "rank_pattern")),
        alpha_patterns=tuple(
            (key, _alpha("alpha_pattern", value)) for key, value in _patterns(fields, "alpha_pattern")
        ),
        targets=_targets(fields),
        names_targets=fields.get("target_modules") is not None,
        base_model_name=_text(fields, "base_model_name_or_path"),
        task_type=_text(fields, "task_type"),
    )
    _check_together(settings, fields)
    return settings


def as_record(settings: LoraSettings) -> dict[str, object]:
    """The fields that decide the answer, under PEFT's names, for the record of a version; long lists are cut."""
    targets = settings.targets
    return {
        "peft_type": "LORA",
        "task_type": settings.task_type,
        "base_model_name_or_path": None if settings.base_model_name is None else _short(settings.base_model_name),
        "r": settings.rank,
        "lora_alpha": settings.alpha,
        "use_rslora": settings.use_rslora,
        "lora_bias": settings.lora_bias,
        "use_dora": settings.use_dora,
        "rank_pattern": _shown(settings.rank_patterns),
        "alpha_pattern": _shown(settings.alpha_patterns),
        "target_modules": _names_shown(targets.modules),
        "exclude_modules": _names_shown(targets.exclude),
        "layers_to_transform": [_whole(layer) for layer in sorted(targets.layers)[:SHOWN_NAMES]],
        "layers_pattern": [_short(pattern) for pattern in targets.layers_patterns[:SHOWN_NAMES]],
    }


def _shown(values: Iterable[tuple[Pattern, float]]) -> dict[str, object]:
    items = [(_short(pattern.text), value) for pattern, value in values]
    shown: dict[str, object] = dict(items[:SHOWN_NAMES])
    return shown if len(items) <= SHOWN_NAMES else {**shown, "...": f"{len(items) - SHOWN_NAMES} more"}


def _names_shown(names: frozenset[str] | str) -> list[str] | str:
    if isinstance(names, str):
        return _short(names)
    shown = [_short(name) for name in sorted(names)[:SHOWN_NAMES]]
    return shown if len(names) <= SHOWN_NAMES else [*shown, f"... {len(names) - SHOWN_NAMES} more"]


def _whole(number: int) -> int | str:
    return number if abs(number) <= MAX_WHOLE else quoted(number)


def _short(text: str) -> str:
    return text if text.isascii() and text.isprintable() and len(text) <= SHOWN_CHARACTERS else quoted(text)


def _parse(data: bytes) -> dict[str, object]:
    try:
        value = strict_json.loads(data, max_depth=8)
    except strict_json.StrictJsonError as error:
        raise _rejected("config_invalid", CONFIG_FILE, f"{error.code} ({error.message})", "strict JSON") from None
    if not isinstance(value, dict):
        raise _rejected("config_invalid", CONFIG_FILE, "no object", "one JSON object")
    return value


def _check_kind(fields: Mapping[str, object]) -> None:
    if fields.get("peft_type") != "LORA":
        raise _rejected("feature_unsupported", "peft_type", quoted(fields.get("peft_type")), "'LORA'")
    if fields.get("task_type") not in (None, "CAUSAL_LM"):
        raise _rejected("feature_unsupported", "task_type", quoted(fields["task_type"]), "'CAUSAL_LM' or null")
    if fields.get("bias", "none") != "none":
        raise _unsupported("bias", quoted(fields["bias"]), "'none'")


def _check_ignored(fields: Mapping[str, object]) -> None:
    """Fields that change no answer, but with which PEFT would not load the file."""
    for name in ("corda_config", "eva_config", "lora_ga_config"):
        value = fields.get(name)
        if value is not None and not isinstance(value, dict):
            raise _rejected("config_invalid", name, quoted(value), "an object or null")
    eva = fields.get("eva_config")
    for name, lowest, highest in (("rho", 1.0, math.inf), ("tau", 0.0, 1.0)):
        if isinstance(eva, dict) and not _is_number(eva.get(name, 1.0), lowest, highest):
            raise _rejected("config_invalid", "eva_config", f"{name} = {quoted(eva[name])}", "a number PEFT accepts")
    if not _is_number(fields.get("lora_dropout", 0.0), 0.0, 1.0):
        raise _rejected("config_invalid", "lora_dropout", quoted(fields["lora_dropout"]), "a number from 0 to 1")


def _is_number(value: object, lowest: float, highest: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and lowest <= value <= highest


def _check_together(settings: LoraSettings, fields: Mapping[str, object]) -> None:
    """Combinations that PEFT refuses, each named by the field that has to change."""
    if settings.use_dora and settings.lora_bias:
        raise _rejected("config_invalid", "lora_bias", "true beside use_dora", "one of the two, as in PEFT")
    if settings.lora_bias and not isinstance(fields.get("init_lora_weights", True), bool):
        found = f"{quoted(fields['init_lora_weights'])} beside lora_bias"
        raise _rejected("config_invalid", "init_lora_weights", found, "true or false, as in PEFT")
    if settings.use_dora and settings.initialisation == "mica":
        raise _rejected("config_invalid", "init_lora_weights", "'mica' beside use_dora", "one of the two, as in PEFT")
    for name in ("layers_to_transform", "layers_pattern"):
        if isinstance(fields.get("target_modules"), str) and fields.get(name) is not None:
            found = f"{quoted(fields[name])} beside a text in target_modules"
            raise _rejected("config_invalid", name, found, "null, as in PEFT")
    if settings.targets.layers_patterns and fields.get("layers_to_transform") is None:
        raise _rejected("config_invalid", "layers_pattern", "a pattern without layers_to_transform", "both, as in PEFT")
    _check_number_of_expressions(settings)


def _check_number_of_expressions(settings: LoraSettings) -> None:
    fields = {
        "rank_pattern": [pattern for pattern, _ in settings.rank_patterns if isinstance(pattern, RegularPattern)],
        "alpha_pattern": [pattern for pattern, _ in settings.alpha_patterns if isinstance(pattern, RegularPattern)],
        "layers_pattern": settings.targets.layers_patterns,
    }
    for name, expressions in fields.items():
        if len(expressions) > MAX_EXPRESSIONS:
            found = f"{len(expressions)} regular expressions"
            raise _rejected("pattern_not_allowed", name, found, f"at most {MAX_EXPRESSIONS}; name the modules")


def _initialisation(fields: Mapping[str, object]) -> str:
    value = fields.get("init_lora_weights")
    if value is None or isinstance(value, bool):
        return ""
    if isinstance(value, str):
        if value.lower() in _ANY_CASE_INITS:
            return value.lower()
        if value in _LOWER_CASE_INITS:
            return value
    raise AdapterRejected(
        "feature_unsupported",
        subject="init_lora_weights",
        found=quoted(value),
        allowed=f"true, false, {', '.join((*_ANY_CASE_INITS, *_LOWER_CASE_INITS))}",
        advice="This initialisation changes the base weights, or PEFT does not know it. Convert the adapter: "
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


def _patterns(fields: Mapping[str, object], name: str) -> Iterable[tuple[Pattern, object]]:
    value = fields.get(name, {})
    if not isinstance(value, dict) or len(value) > MAX_NAMES:
        raise _rejected("config_invalid", name, quoted(value), f"an object of at most {MAX_NAMES} names")
    return ((parse_pattern(name, key), item) for key, item in value.items())


def _targets(fields: Mapping[str, object]) -> Targets:
    modules, exclude = _names(fields, "target_modules"), _names(fields, "exclude_modules")
    pattern = _names(fields, "layers_pattern") or ()
    return Targets(
        modules=DEFAULT_TARGETS if modules is None else modules,
        # An empty text excludes nothing in PEFT, though as an expression it would match an empty name.
        exclude=exclude or frozenset(),
        layers=_layers(fields),
        layers_patterns=(pattern,) if isinstance(pattern, str) else tuple(_listed(fields, "layers_pattern")),
    )


def _names(fields: Mapping[str, object], name: str) -> frozenset[str] | str | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, str):
        check_length(name, value)
        return value
    if not _are_names(value) or len(value) > MAX_NAMES:
        raise _rejected("config_invalid", name, quoted(value), f"text, null or a list of at most {MAX_NAMES} names")
    for item in value:
        check_length(name, item)
    return frozenset(value)


def _are_names(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _listed(fields: Mapping[str, object], name: str) -> list[str]:
    value = fields.get(name)
    return value if _are_names(value) else []


def _layers(fields: Mapping[str, object]) -> frozenset[int]:
    """The layers PEFT would adapt; none named means all of them."""
    value = fields.get("layers_to_transform")
    listed = value if isinstance(value, list) else [] if value is None else [value]
    if not all(type(item) is int for item in listed):
        raise _rejected(
            "config_invalid", "layers_to_transform", quoted(value), "a whole number, a list of them or null"
        )
    return frozenset(listed)


def _unsupported(name: str, found: str, allowed: str) -> AdapterRejected:
    advice = FIELD_VERDICTS[name].reason
    return AdapterRejected("feature_unsupported", subject=name, found=found, allowed=allowed, advice=advice)


def _rejected(code: RejectCode, subject: str, found: str, allowed: str) -> AdapterRejected:
    return AdapterRejected(code, subject=subject, found=found, allowed=allowed)
