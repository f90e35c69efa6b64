"""The settings for a command: read, checked, shown without secrets."""

from __future__ import annotations

import re
from typing import Any

from pydantic import ValidationError

from lorikeet_platform.cli.console import CommandFailed, ExitCode
from lorikeet_platform.settings import Settings

# `scheme://user:password@host`: the password, whatever the scheme.
PASSWORD = re.compile(r"(?<=://)([^/@:\s]*):[^/@\s]*@")


def load_settings() -> Settings:
    """The settings in force; a wrong one ends the command with its name, never with its value."""
    try:
        return Settings()
    except ValidationError as error:
        faults = [f"{_name(fault['loc'])}{fault['msg']}" for fault in error.errors(include_input=False)]
        raise CommandFailed(ExitCode.USAGE, "settings: " + "; ".join(faults)) from None


def redacted(settings: Settings) -> dict[str, Any]:
    return {name: _redact(value) for name, value in settings.model_dump(mode="json").items()}


def _redact(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _redact(inner) for name, inner in value.items()}
    return PASSWORD.sub(r"\1:***@", value) if isinstance(value, str) else value


def _name(path: tuple[int | str, ...]) -> str:
    return f"LORIKEET_{'__'.join(str(step) for step in path).upper()}: " if path else ""
