"""What a key may be made to be, and by whom: nobody gives more than they have.

An administrator has everything. A key gives of its own scopes, adapters, networks, time and limits; what it leaves
unsaid is as its own, so that a key of a narrow key is no wider by omission.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, Literal, cast

from lorikeet_platform.auth.addresses import covers, parse_network
from lorikeet_platform.auth.principal import Principal
from lorikeet_platform.auth.scopes import DEFAULT_SCOPES, SCOPES, Scope
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.limits.effective import WITH_BURST, Dimension, Figures
from lorikeet_platform.limits.service import Changes

# Of these, every lineage has as much as its limit says; the other limits are of each request alone.
COUNTED_OVER_REQUESTS: Final[frozenset[Dimension]] = frozenset(
    ("rpm", "tpm", "concurrent", "queue_depth", "monthly_tokens")
)


class Unsaid(Enum):
    """A field that a request leaves out, where null means something."""

    UNSAID = "unsaid"


UNSAID: Final = Unsaid.UNSAID
_Unsaid = Literal[Unsaid.UNSAID]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a request says a key shall be; `allowed_adapters` are names."""

    name: str | _Unsaid = UNSAID
    scopes: Sequence[Scope] | _Unsaid = UNSAID
    allowed_adapters: Sequence[str] | _Unsaid | None = UNSAID
    ip_allowlist: Sequence[str] | _Unsaid | None = UNSAID
    expires_at: int | _Unsaid | None = UNSAID


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a key is: `allowed_adapters` are ids; None = all of them, anywhere, for ever."""

    scopes: frozenset[Scope]
    allowed_adapters: frozenset[str] | None = None
    ip_allowlist: tuple[str, ...] | None = None
    expires_at: int | None = None


EVERYTHING: Final = Grant(scopes=frozenset(DEFAULT_SCOPES))


def as_maker(maker: Principal | None) -> Grant:
    """What a key is about which nothing is said."""
    if maker is None:
        return EVERYTHING
    return replace(_grant_of(maker), scopes=frozenset(DEFAULT_SCOPES) & maker.scopes)


def ordered(scopes: frozenset[Scope]) -> list[Scope]:
    return [scope for scope in SCOPES if scope in scopes]


def field_beyond(wanted: Grant, bound: Grant) -> str | None:
    """The first field in which `wanted` may something that `bound` may not."""
    adapters, wanted_adapters = bound.allowed_adapters, wanted.allowed_adapters
    networks = [parse_network(text) for text in bound.ip_allowlist or ()]
    wanted_networks = [parse_network(text) for text in wanted.ip_allowlist or ()]
    ends_at = bound.expires_at
    if wanted.scopes - bound.scopes:
        return "scopes"
    if adapters is not None and (wanted_adapters is None or wanted_adapters - adapters):
        return "allowed_adapters"
    if networks and not (wanted_networks and all(covers(networks, network) for network in wanted_networks)):
        return "ip_allowlist"
    if ends_at is not None and (wanted.expires_at is None or wanted.expires_at > ends_at):
        return "expires_at"
    return None


def check_grant(maker: Principal | None, grant: Grant, *, keys_make_keys: bool) -> None:
    """Whether `maker` may have a key be `grant`.

    Raises:
        PlatformError: insufficient_scope, with the field as its param.
    """
    if "keys:write" in grant.scopes and not keys_make_keys:
        raise PlatformError(
            "insufficient_scope", "No key of this tenant may have keys:write: keys_make_keys is off.", "scopes"
        )
    if maker is None:
        return
    if missing := grant.scopes - maker.scopes:
        raise PlatformError(
            "insufficient_scope", f"Your key does not have the scope {ordered(missing)[0]} itself.", "scopes"
        )
    field = field_beyond(grant, _grant_of(maker))
    if field is not None:
        raise _beyond(field)


def check_limits(maker: Principal | None, changes: Changes) -> None:
    """Whether `maker` may set `changes`, of which every dimension is one of keys.

    Raises:
        PlatformError: insufficient_scope.
    """
    if maker is None:
        return
    for name, figures in changes.items():
        dimension = cast(Dimension, name)
        bound = maker.limits[dimension]
        if figures is None:
            if dimension in maker.limits.of_key:
                raise _beyond(f"limits.{dimension}")
        elif figures[0] > bound.value or (dimension in WITH_BURST and _burst(figures) > bound.burst):
            raise _beyond(f"limits.{dimension}")


def check_limited(maker: Principal | None, own: Figures) -> None:
    """Whether a key with `own` limits is held at least as tightly as `maker` is by its own.

    Raises:
        PlatformError: insufficient_scope.
    """
    if maker is None:
        return
    for dimension, bound in maker.limits.of_key.items():
        figures = own.get(dimension)
        if figures is None or figures[0] > bound.value:
            raise _beyond(f"limits.{dimension}")
        if dimension in WITH_BURST and _burst(figures) > bound.burst:
            raise _beyond(f"limits.{dimension}")


def check_new_budget(maker: Principal | None) -> None:
    """Whether `maker` may get the secret of another lineage, which rates and budgets count on its own.

    Whose own requests or tokens are counted must not have them counted anew.

    Raises:
        PlatformError: insufficient_scope.
    """
    counted = () if maker is None else sorted(COUNTED_OVER_REQUESTS & set(maker.limits.of_key))
    if counted:
        raise PlatformError(
            "insufficient_scope", f"A key with a limit of its own on {counted[0]} makes no keys: each would count anew."
        )


def limits_as_maker(maker: Principal | None, changes: Changes) -> Changes:
    """`changes`, and where they say nothing the limits of the maker's own."""
    if maker is None:
        return changes
    own: Mapping[str, tuple[int, int | None]] = {
        dimension: (limit.value, limit.burst if dimension in WITH_BURST else None)
        for dimension, limit in maker.limits.of_key.items()
    }
    return {**own, **changes}


def _grant_of(maker: Principal) -> Grant:
    return Grant(
        scopes=maker.scopes,
        allowed_adapters=maker.allowed_adapters,
        ip_allowlist=tuple(map(str, maker.networks)) or None,
        expires_at=maker.expires_at,
    )


def _burst(figures: tuple[int, int | None]) -> int:
    value, burst = figures
    return value if burst is None else burst


def _beyond(param: str) -> PlatformError:
    return PlatformError("insufficient_scope", f"{param}: a key gives no more than it has itself.", param)
