"""The rules of the house that a tool can hold: sizes, names, imports, and who may know torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = [
    ROOT / "adapters/lorikeet_adapters",
    ROOT / "engine/lorikeet_engine",
    ROOT / "platform/lorikeet_platform",
    ROOT / "migrations/lorikeet_migrations",
    ROOT / "admin_ui/lorikeet_admin_ui",
]
MAX_FILE_LINES, MAX_FUNCTION_LINES = 400, 60
BANNED_NAMES = {"utils", "util", "common", "helpers", "helper", "core", "base", "misc"}
TOP_LEVEL = {
    "pyproject.toml", "README.md", "platform", "engine", "adapters", "admin_ui", "migrations", "tests", "helm",
    "Makefile", "LICENSE", ".ci", "benchmarks", "docs", "constraints.txt", ".gitignore",
}  # fmt: skip
# Longer than the rule allows, each with the reason.
LONG_FUNCTIONS: dict[str, str] = {}


def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).exists()]


def modules() -> list[Path]:
    return [path for package in PACKAGES for path in sorted(package.rglob("*.py"))]


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_top_of_the_repository_holds_what_was_agreed() -> None:
    top = {name_of(path).split("/")[0] for path in tracked()}
    assert top <= TOP_LEVEL


def test_no_source_root_is_a_package_itself() -> None:
    assert [name_of(p.parent) for p in PACKAGES if (p.parent / "__init__.py").exists()] == []


def test_files_are_short_enough_to_hide_one_decision() -> None:
    sources = [*modules(), *tracked("tests/*.py", "admin_ui/src/*.ts", "admin_ui/src/*.tsx")]
    lengths = {name_of(p): len(p.read_text().splitlines()) for p in sources if not p.name.endswith(".gen.ts")}
    assert {name: n for name, n in lengths.items() if n > MAX_FILE_LINES} == {}


def test_functions_read_as_one_thought() -> None:
    too_long = {}
    for path in modules():
        for function in functions(path):
            n_lines = (function.end_lineno or 0) - function.lineno + 1
            name = f"{name_of(path)}:{function.name}"
            if n_lines > MAX_FUNCTION_LINES and name not in LONG_FUNCTIONS:
                too_long[name] = n_lines
    assert too_long == {}


def test_nothing_is_called_utils() -> None:
    assert [name_of(path) for path in modules() if path.stem in BANNED_NAMES or path.parent.name in BANNED_NAMES] == []


def test_imports_stand_at_the_top_except_where_start_up_must_be_quick() -> None:
    inside = []
    for path in modules():
        if "lorikeet_platform/cli/" in name_of(path):
            continue
        for function in functions(path):
            if any(isinstance(node, ast.Import | ast.ImportFrom) for node in ast.walk(function)):
                inside.append(f"{name_of(path)}:{function.name}")
    # What it imports is an optional extra.
    assert inside == ["platform/lorikeet_platform/telemetry/tracing/tracer.py:open_tracer"]


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        name_of(p) for p in modules() if p.read_text().strip() and not ast.get_docstring(ast.parse(p.read_text()))
    ]
    assert silent == []


def test_no_unfinished_work_is_left_in_the_code() -> None:
    marks = ("TO" + "DO", "FIX" + "ME", "XX" + "X", "NotImplemented" + "Error")
    sources = [*modules(), *tracked("tests/*.py", "admin_ui/src/*", "helm/*")]
    found = [name_of(path) for path in sources if any(mark in path.read_text(errors="replace") for mark in marks)]
    assert found == []


@pytest.mark.parametrize(
    "statement",
    [
        "import lorikeet_platform.cli",
        "import lorikeet_platform.app",
        "import lorikeet_engine.client",
        "import lorikeet_engine.loop",
        "import lorikeet_engine.server",
        "import lorikeet_adapters.validate",
    ],
)
def test_what_talks_and_decides_starts_without_torch(statement: str) -> None:
    program = f"{statement}\nimport sys\nsys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_the_computing_side_runs_without_the_platforms_libraries() -> None:
    """Machines lent for GPU checks have torch and transformers, and neither pydantic nor msgspec nor SQLAlchemy."""
    blocked = ["pydantic", "msgspec", "sqlalchemy", "prometheus_client", "fastapi", "zmq", "structlog", "celery"]
    program = f"import sys\nfor name in {blocked}: sys.modules[name] = None\nimport lorikeet_engine.build"
    result = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
