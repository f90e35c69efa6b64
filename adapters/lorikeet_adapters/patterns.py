"""Keys of rank_pattern and alpha_pattern, matched as PEFT matches them, without executing anybody's expression.

PEFT takes each key K as a regular expression and accepts a module path when `re.match(r"(.*\\.)?(K)$", path)` does.
A key of plain characters then means a tail of the path that begins at a dot; its own dots stand for any character,
and a leading ^ leaves only the whole path. That much is matched here in linear time; other keys are refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from lorikeet_adapters.errors import AdapterRejected, quoted

MAX_PATTERN_CHARACTERS: Final = 256

_ATOM: Final = re.compile(r"[A-Za-z0-9_-]|\.|\\\.")


@dataclass(frozen=True, slots=True)
class LiteralPattern:
    """One character per place of the path's tail; None stands for any character."""

    text: str
    characters: tuple[str | None, ...]
    whole_path: bool

    def matches(self, path: str) -> bool:
        """Whether PEFT would take this key for the module at `path`."""
        start = len(path) - len(self.characters)
        if start < 0 or (start > 0 and (self.whole_path or path[start - 1] != ".")):
            return False
        return all(want is None or want == have for want, have in zip(self.characters, path[start:], strict=True))


def parse_pattern(field: str, key: str) -> LiteralPattern:
    """The pattern that `key` of configuration field `field` means."""
    whole_path = key.startswith("^")
    rest = key[1:] if whole_path else key
    atoms = _ATOM.findall(rest)
    if not rest or len(key) > MAX_PATTERN_CHARACTERS or "".join(atoms) != rest:
        raise AdapterRejected(
            "pattern_not_allowed",
            subject=field,
            found=quoted(key),
            allowed=f"names such as 'layers.1.self_attn.q_proj', at most {MAX_PATTERN_CHARACTERS} characters",
            advice="Regular expressions are not served; name the modules one by one.",
        )
    return LiteralPattern(key, tuple(None if atom == "." else atom[-1] for atom in atoms), whole_path)
