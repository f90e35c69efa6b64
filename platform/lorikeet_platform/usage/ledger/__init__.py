"""The ledger: what is opened is reserved in two budgets, what is settled moves from reserved to settled, once.

Records and counters change together, in the caller's transaction. On Postgres opening and settling are one statement
each, so that a tenant's counter, which all of its requests want, is locked for little longer than a commit. The parts
of such a statement are in order because each reads the one before: first the tenant's counter, then the key's. Who
locks both locks them so, or two would wait for each other. SQLite has one writer at a time, and takes part after part.
"""

from __future__ import annotations

from lorikeet_platform.usage.ledger.costs import record_costs
from lorikeet_platform.usage.ledger.opening import NotReserved, Opening, Shortage, find_shortage, open_record
from lorikeet_platform.usage.ledger.settlement import (
    LedgerBroken,
    Outcome,
    SettledBy,
    Settlement,
    Verdict,
    settle,
)

__all__ = [
    "LedgerBroken",
    "NotReserved",
    "Opening",
    "Outcome",
    "SettledBy",
    "Settlement",
    "Shortage",
    "Verdict",
    "find_shortage",
    "open_record",
    "record_costs",
    "settle",
]
