"""What every store of buckets is asked and answers; `local` and `shared` are such stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from lorikeet_platform.limits.rates.gcra import Rate, Reading, State


@dataclass(frozen=True, slots=True)
class Charge:
    """`cost` units of the bucket `name`; 0 = only look at it."""

    name: str
    rate: Rate
    cost: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """A charge that was made.

    Attributes:
        until: the bucket's stored time right after it.
        is_shared: whether the shared store has it.
    """

    name: str
    rate: Rate
    cost: int
    until: State
    is_shared: bool


@dataclass(frozen=True, slots=True)
class Refund:
    """`cost` units of an earlier charge that were not used."""

    receipt: Receipt
    cost: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of several charges: all of them were made, or none.

    Attributes:
        readings: of every bucket asked about, in order, afterwards.
        receipts: one for every charge above 0; empty when refused.
    """

    passed: bool
    readings: tuple[Reading, ...]
    receipts: tuple[Receipt, ...]


class Buckets(Protocol):
    def charge(self, tenant_id: str, charges: Sequence[Charge]) -> Outcome:
        """Charge several buckets of one tenant, all or none."""
        ...

    def refund(self, tenant_id: str, refunds: Sequence[Refund]) -> None:
        """Waits for nobody and raises nothing."""
        ...

    def close(self) -> None: ...
