"""The picture of a memory ledger that leaves the engine; below both the ledgers and the protocol."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LedgerSnapshot:
    """A ledger at one moment, in bytes.

    `fragmentation` is held but unusable inside allocations; `external_fragmentation` is free but outside the largest
    free run; `shared` is the part of `used` that several requests use at once (the rest is exclusive to one).
    """

    name: str
    capacity: int
    used: int
    reserved: int
    in_flight: int
    cached: int
    free: int
    fragmentation: int
    by_tenant: dict[str, int]
    shared: int = 0
    external_fragmentation: int = 0
