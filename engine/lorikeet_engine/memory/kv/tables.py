"""What the block manager knows of one request: the blocks that it holds and was promised, or its slots in host memory.

Plain records; `manager` keeps them true.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from lorikeet_engine.memory.kv.prefix_index import PrefixChain
from lorikeet_engine.memory.ledger import Owner

NO_SLOT = -1


@dataclass(slots=True)
class BlockTable:
    """The blocks of a running request in token order, and how many more it was promised.

    Attributes:
        n_committed: so many leading blocks need no commit any more.
        view: what the plan is given, kept until blocks change.
        found_s: what each holder of the blocks that it found had of them when it came (`BlockPool.seconds`).
    """

    owner: Owner
    chain: PrefixChain
    blocks: list[int] = field(default_factory=list)
    n_promised: int = 0
    n_tokens: int = 0
    n_committed: int = 0
    view: tuple[int, ...] = ()
    found_s: float = 0.0
    _promised_s: float = 0.0  # blocks times seconds, until the promise changed last
    _changed_s: float = 0.0

    def set_promise(self, n_blocks: int, now_s: float) -> None:
        """It is so many blocks from now on."""
        self._promised_s, self._changed_s = self.promised_seconds(now_s), now_s
        self.n_promised = n_blocks

    def promised_seconds(self, now_s: float) -> float:
        """Blocks that it was promised, times how long."""
        return self._promised_s + self.n_promised * (now_s - self._changed_s)


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
