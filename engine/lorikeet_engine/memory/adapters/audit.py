"""Whether the books of both adapter tiers say what is there. For tests and checks: walks over everything."""

from __future__ import annotations

from collections.abc import Mapping

from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.adapters.entry import AdapterEntry
from lorikeet_engine.memory.adapters.host_cache import AdapterHostCache
from lorikeet_engine.memory.adapters.room import AdapterRoom
from lorikeet_engine.memory.ledger import LedgerImbalance, MemoryState


def audit_adapters(entries: Mapping[AdapterKey, AdapterEntry], room: AdapterRoom, host: AdapterHostCache) -> None:
    """Raise `LedgerImbalance` unless both ledgers equal a recount and every adapter is where its entry says."""
    for ledger, recount in ((room.ledger, room.recount()), (host.ledger, host.recount())):
        ledger.audit()
        if {state: ledger[state] for state in MemoryState} != recount:
            raise LedgerImbalance(f"{ledger.name}: a recount says {recount}")
    for key, entry in entries.items():
        is_right = entry.is_consistent(
            in_room=key in room, in_order=key in room.order, in_host=key in host, is_wished=host.is_wished(key)
        )
        if not is_right:
            raise LedgerImbalance(f"adapter {key.digest} is not where its state says: {entry}")
