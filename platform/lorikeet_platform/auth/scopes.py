"""What a key may do: a closed list without wildcards. A handler says with `needs` what its callers need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, TypeVar, get_args

Scope = Literal[
    "inference",
    "models:read",
    "adapters:read",
    "adapters:write",
    "deployments:write",
    "keys:read",
    "keys:write",
    "usage:read",
    "audit:read",
]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
# What a key gets that is made without a word about scopes: all but keys themselves.
DEFAULT_SCOPES: Final[tuple[Scope, ...]] = tuple(scope for scope in SCOPES if not scope.startswith("keys:"))

Handler = TypeVar("Handler", bound=Callable[..., Any])
_ATTRIBUTE = "lorikeet_scopes"


def needs(*scopes: Scope) -> Callable[[Handler], Handler]:
    """Marks a route's handler: a key needs one of `scopes`; none = any key that is valid."""

    def mark(handler: Handler) -> Handler:
        setattr(handler, _ATTRIBUTE, frozenset(scopes))
        return handler

    return mark


def scopes_of(handler: Callable[..., Any]) -> frozenset[Scope] | None:
    """None for a handler that says nothing; such a route is not served."""
    found: frozenset[Scope] | None = getattr(handler, _ATTRIBUTE, None)
    return found
