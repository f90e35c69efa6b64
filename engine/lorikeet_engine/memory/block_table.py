"""What one request holds: a table of device blocks while it runs, host slots while it is swapped out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from lorikeet_engine.memory.ledger import Owner
from lorikeet_engine.memory.prefix_index import PrefixChain

NO_SLOT = -1


@dataclass(slots=True)
class BlockTable:
    """The blocks of a running request in token order, and how many more it was promised.

    `n_committed` leading blocks need no commit any more; `view` is what the plan is given, kept until blocks change.
    """

    owner: Owner
    chain: PrefixChain
    n_promised: int
    blocks: list[int] = field(default_factory=list)
    n_tokens: int = 0
    n_committed: int = 0
    view: tuple[int, ...] = ()


@dataclass(slots=True)
class SwappedTable:
    """A request without device blocks: `slots[i]` keeps its block i, `NO_SLOT` one to be found by its key again."""

    owner: Owner
    chain: PrefixChain
    n_computed: int
    slots: list[int]

    def kept(self) -> list[int]:
        """The host slots it comes back for."""
        return [slot for slot in self.slots if slot != NO_SLOT]


class SwapIn(NamedTuple):
    """How far a request that came back is computed, and the copies (host slot, device block) that bring it there."""

    n_computed: int
    copies: tuple[tuple[int, int], ...]
