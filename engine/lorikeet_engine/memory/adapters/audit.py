"""Whether the books of both adapter tiers say what is there. For tests and checks: walks over everything."""

from __future__ import annotations

from collections import Counter

from lorikeet_engine.memory.adapters.entry import AdapterEntries
from lorikeet_engine.memory.adapters.host_cache import AdapterHostCache
from lorikeet_engine.memory.adapters.room import AdapterRoom
from lorikeet_engine.memory.ledger import LedgerImbalance, MemoryState


def audit_adapters(entries: AdapterEntries, room: AdapterRoom, host: AdapterHostCache) -> None:
    """Raise `LedgerImbalance` unless both ledgers equal a recount and every adapter is where its entry says."""
    for ledger, recount in ((room.ledger, room.recount()), (host.ledger, host.recount())):
        ledger.audit()
        if {state: ledger[state] for state in MemoryState} != recount:
            raise LedgerImbalance(f"{ledger.name}: a recount says {recount}")
    census, of_entries = Counter(entries.by_state()), Counter(entry.word for entry in entries.values())
    if census != of_entries:
        raise LedgerImbalance(f"adapters: the census says {census}, the entries {of_entries}")
    for key, entry in entries.items():
        is_right = entry.is_consistent(
            in_room=key in room, in_order=key in room.order, in_host=key in host, is_wished=host.is_wished(key)
        )
        if not is_right:
            raise LedgerImbalance(f"adapter {key.digest} is not where its state says: {entry}")
