"""Names and expressions in a configuration, matched as PEFT matches them.

A key K of rank_pattern or alpha_pattern is a regular expression to PEFT, which takes it for a module when
`re.match(r"(.*\\.)?(K)$", path)` does. A key of plain characters then means a tail of the path that begins at a dot;
its own dots stand for any character, and a leading ^ leaves only the whole path. That much is matched here in linear
time; any other key goes to `re` as PEFT would give it, but only where adapters are validated.
"""

from __future__ import annotations

import re
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Final, Protocol

from lorikeet_adapters.errors import AdapterRejected, quoted

MAX_PATTERN_CHARACTERS: Final = 256
EVALUATION_S: Final = 10.0

_ATOM: Final = re.compile(r"[A-Za-z0-9_-]|\.|\\\.")


class Pattern(Protocol):
    """A key that modules are compared with."""

    @property
    def text(self) -> str:
        """The key as it is written."""
        ...

    def matches(self, path: str) -> bool:
        """Whether PEFT would take this key for the module at `path`."""
        ...


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


@dataclass(frozen=True, slots=True)
class RegularPattern:
    """A key with more than plain characters."""

    text: str

    @property
    def expression(self) -> str:
        """What PEFT gives to `re.match`."""
        return rf"(.*\.)?({self.text})$"

    def matches(self, path: str) -> bool:
        """Whether PEFT would take this key for the module at `path`."""
        return re.match(self.expression, path) is not None


def parse_pattern(field: str, key: str) -> LiteralPattern | RegularPattern:
    """The pattern that `key` of configuration field `field` means."""
    check_length(field, key)
    whole_path = key.startswith("^")
    rest = key[1:] if whole_path else key
    atoms = _ATOM.findall(rest)
    if not rest or "".join(atoms) != rest:
        return RegularPattern(key)
    return LiteralPattern(key, tuple(None if atom == "." else atom[-1] for atom in atoms), whole_path)


def check_length(field: str, text: str) -> None:
    """Refuse a name or expression that is too long to be one."""
    if len(text) > MAX_PATTERN_CHARACTERS:
        raise AdapterRejected(
            "pattern_not_allowed",
            subject=field,
            found=f"{quoted(text)} of {len(text)} characters",
            allowed=f"names and expressions of at most {MAX_PATTERN_CHARACTERS} characters",
        )


def check_expression(field: str, text: str, expression: str) -> None:
    """Refuse `text` when Python cannot read the `expression` that PEFT makes of it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(expression)
    except (re.error, OverflowError, RecursionError) as error:
        raise AdapterRejected(
            "pattern_not_allowed",
            subject=field,
            found=f"{quoted(text)}: {quoted(str(error))}",
            allowed="names, or regular expressions that Python can read",
        ) from None


class _TooSlow(Exception):
    """Raised by the timer inside whatever runs."""


@contextmanager
def limited_time(seconds: float = EVALUATION_S) -> Iterator[None]:
    """Refuse the adapter when what runs inside takes more than `seconds` of computing.

    An expression can be written to take years. Python looks for signals while it matches, but only the main thread
    is interrupted; elsewhere, the limit is that of the process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGVTALRM, _raise_too_slow)
    try:
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
            yield
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except _TooSlow:
        raise AdapterRejected(
            "pattern_not_allowed",
            subject="rank_pattern, alpha_pattern, target_modules, exclude_modules or layers_pattern",
            found=f"expressions that take more than {seconds:g} s to compare with the modules",
            allowed="expressions that do not backtrack without end",
            advice="Name the modules one by one.",
        ) from None
    finally:
        signal.signal(signal.SIGVTALRM, previous)


def _raise_too_slow(_number: int, _frame: FrameType | None) -> None:
    raise _TooSlow
