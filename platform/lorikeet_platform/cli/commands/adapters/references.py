"""How commands name adapters and versions, and how they write figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lorikeet_platform.cli.console import CommandFailed, ExitCode


@dataclass(frozen=True, slots=True)
class VersionReference:
    """`name` or `name:7`."""

    adapter: str
    number: int | None

    @property
    def path(self) -> str:
        """Of the version, or of the adapter, in the tenant API."""
        version = "" if self.number is None else f"/versions/{self.number}"
        return adapter_path(self.adapter) + version


def parse_reference(text: str) -> VersionReference:
    """Raises CommandFailed."""
    name, colon, number = text.partition(":")
    if colon and not (number.isascii() and number.isdigit()):
        raise CommandFailed(ExitCode.USAGE, f"{text!r} is neither an adapter's name nor NAME:NUMBER")
    return VersionReference(name, int(number) if colon else None)


def parse_version(text: str) -> VersionReference:
    """A reference that names a version; raises CommandFailed."""
    reference = parse_reference(text)
    if reference.number is None:
        raise CommandFailed(ExitCode.USAGE, f"say which version: {text}:NUMBER")
    return reference


def adapter_path(name: str) -> str:
    from urllib.parse import quote

    return f"/v1/adapters/{quote(name, safe='')}"


def alias_text(alias: dict[str, Any]) -> str:
    """`live → 7`, or with shares: `live → 7 90 % 8 10 %`."""
    targets = alias["targets"]
    if len(targets) == 1:
        return f"{alias['alias']} → {targets[0]['version']}"
    return f"{alias['alias']} → {shares_text(targets)}"


def shares_text(targets: list[dict[str, Any]]) -> str:
    if len(targets) == 1:
        return str(targets[0]["version"])
    return ", ".join(f"{target['version']} ({target['weight']} %)" for target in targets)


def mebibytes(n_bytes: int | None) -> str:
    return "" if n_bytes is None else f"{n_bytes / (1 << 20):.1f} MiB"
