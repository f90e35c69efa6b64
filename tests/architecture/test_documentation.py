"""The operator's guide names every setting, error code, rejection code and command; metrics have their own page."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from pathlib import Path

import typer.main
from pydantic import BaseModel
from typer.core import TyperGroup

from lorikeet_adapters.errors import RejectCode
from lorikeet_platform.cli import app
from lorikeet_platform.errors import ERRORS
from lorikeet_platform.settings import Settings

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "operators.md").read_text()


def settings_names(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from settings_names(field.annotation, f"{prefix}{name.upper()}__")
        else:
            yield f"{prefix}{name.upper()}"


def commands(group: TyperGroup, prefix: str) -> Iterator[str]:
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}"


def test_every_setting_is_explained() -> None:
    assert [name for name in settings_names(Settings, "LORIKEET_") if f"`{name}`" not in GUIDE] == []


def test_every_error_code_is_listed_with_its_status() -> None:
    lines = [line for line in GUIDE.splitlines() if line.startswith("| ")]
    missing = [
        code
        for code, kind in ERRORS.items()
        if not any(f"`{code}`" in line and str(kind.status) in line.split("|")[1] for line in lines)
    ]
    assert missing == []


def test_every_rejection_code_is_listed() -> None:
    assert [code for code in typing.get_args(RejectCode) if f"`{code}`" not in GUIDE] == []


def test_every_command_is_listed() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    assert [name for name in commands(group, "lorikeet") if name not in GUIDE] == []
