"""Every formula and table of the published figures has a test that bears its number."""

from __future__ import annotations

import ast
import re
from pathlib import Path

STATEMENTS = range(1, 13)
NUMBERED = re.compile(r"test_o1_(\d+)_")


def test_every_o1_number_is_in_the_name_of_a_test() -> None:
    names = [
        node.name
        for path in Path(__file__).parent.glob("test_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
    ]
    numbers = {int(found[1]) for name in names if (found := NUMBERED.match(name))}
    assert numbers == set(STATEMENTS)
