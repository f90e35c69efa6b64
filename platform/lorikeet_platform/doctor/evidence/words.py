"""Numbers as people read them: with a unit, and no more digits than they are good for."""

from __future__ import annotations

from typing import Final

MIB: Final = 1 << 20
_UNITS: Final = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.0995 else f"{100 * share:.0f} %"


def seconds(value: float) -> str:
    if value < 1.0:
        return f"{1000 * value:.3g} ms"
    return f"{value:.2f} s" if value < 10 else f"{value:,.0f} s"


def n_bytes(value: float) -> str:
    for unit, name in _UNITS:
        if value >= unit:
            return f"{value / unit:.1f} {name}"
    return f"{value:.0f} B"


def count(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def per_minute(n: float, seconds_: float) -> str:
    return f"{count(60 * n / seconds_)} a minute"


def up_to_mib(value: float) -> int:
    """The next whole MiB."""
    return -(-int(value) // MIB) * MIB
