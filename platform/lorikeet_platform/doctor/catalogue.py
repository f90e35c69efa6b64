"""Every rule there is, in the order in which findings of one severity are shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from lorikeet_platform.doctor.examined import Seen, Surroundings
from lorikeet_platform.doctor.schemas import Finding

PlatformRule = Callable[[Surroundings], Finding | None]
EngineRule = Callable[[Seen], Finding | None]

PLATFORM_RULES: Final[Mapping[str, PlatformRule]] = {}
ENGINE_RULES: Final[Mapping[str, EngineRule]] = {}
NAMES: Final = (*PLATFORM_RULES, *ENGINE_RULES)
