"""The settings for a command: read, checked, shown without secrets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from lorikeet_platform.cli.console import CommandFailed, ExitCode
from lorikeet_platform.settings import Settings

# `scheme://user:password@host`, up to the last @: a password may hold every other character, / and @ too.
PASSWORD = re.compile(r"(?<=://)([^@:]*):.*@")
# `?password=…` and the like: database drivers take credentials from an address's query too.
SECRET_PARAMETER = re.compile(r"(?i)([?&][^=&]*(?:password|passwd|secret|token)[^=&]*=)[^&]*")


def load_settings(*, model: str | None = None, quantization: str | None = None) -> Settings:
    """The settings in force, those given before the environment's; a wrong one is named, its value is not repeated.

    A model other than the embedded one is called by the last part of its name unless a name was chosen: adapters are
    bound to the name of their base model, and two models must not share one.
    """
    try:
        given: dict[str, Any] = {} if model is None else {"model": model}
        if quantization is not None:
            given["engine"] = {"quantization": quantization}
        settings = Settings(**given)
        if {"model", "model_name"} & settings.model_fields_set == {"model"}:
            settings = Settings(**given | {"model": settings.model, "model_name": _name_of(settings.model)})
        return settings
    except ValidationError as error:
        faults = [f"{_name(fault['loc'])}{fault['msg']}" for fault in error.errors(include_input=False)]
        raise CommandFailed(ExitCode.USAGE, "settings: " + "; ".join(faults)) from None


def redacted(settings: Settings) -> dict[str, Any]:
    return {name: _redact(value) for name, value in settings.model_dump(mode="json").items()}


def _name_of(model: str) -> str:
    default = Settings.model_fields["model"].default
    if model == default:
        return str(Settings.model_fields["model_name"].default)
    return Path(model.removeprefix("package:")).name.lower()


def _redact(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _redact(inner) for name, inner in value.items()}
    if isinstance(value, str) and "://" in value:
        return SECRET_PARAMETER.sub(r"\1***", PASSWORD.sub(r"\1:***@", value))
    return value


def _name(path: tuple[int | str, ...]) -> str:
    return f"LORIKEET_{'__'.join(str(step) for step in path).upper()}: " if path else ""
