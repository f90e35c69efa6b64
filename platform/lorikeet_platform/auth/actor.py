"""Who changes something of a tenant: one of its keys, or an administrator in its stead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from lorikeet_platform.auth.principal import Principal

ADMINISTRATOR: Final = "administrator"
SYSTEM: Final = "system"  # a rule of the platform itself, such as an alias's guard

# A dependency that finds out the actor: one for each port.
FindActor = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Actor:
    """`name` is what records keep: a key's id, ADMINISTRATOR or SYSTEM. `key` is None for everybody but a key."""

    tenant_id: str
    name: str
    key: Principal | None = None
