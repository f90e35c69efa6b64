"""What the scheduler counts, for metrics and the overview. Totals since the start unless a comment says otherwise."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from lorikeet_engine.identity import AdapterKey

KEPT_OWNERS = 2048
OTHERS = ("", "")  # in place of owners that are not told apart any more
ERROR_MEMORY = 0.05  # weight of the newest request in the running error of the TTFT prediction


@dataclass(frozen=True, slots=True)
class TenantLoad:
    """One tenant's place in the queue.

    `service` is its virtual token counter, `received` that without what it was lifted by when it came back from
    idleness; `waiting` includes the preempted.
    """

    tenant: str
    waiting: int
    running: int
    service: float
    weight: float
    received: float


class AdapterNews(NamedTuple):
    """What happened to single adapters: those that left the arena, and the waits for one that are over, in seconds."""

    evicted: list[AdapterKey]
    stalls: list[tuple[AdapterKey, float]]


@dataclass(slots=True)
class SchedulerCounters:
    """`prefix_*` count prompt tokens by (tenant, adapter digest or ""), once a request, when it is first admitted.

    Attributes:
        misses: why the first block that was not found in the prefix cache was missing, by reason.
        recomputed_hits: tokens that resumed requests found in the prefix cache again.
        adapter_stall_s: seconds that requests waited for their adapter though their turn had come.
        longest_adapter_wait_s: the longest such wait so far.
        ttft_error_s: running mean of |predicted - actual| time to the first token.
        adapter_news: since somebody took it last.
    """

    preemptions: Counter[str] = field(default_factory=lambda: Counter(swap=0, recompute=0, wait=0))
    refusals: Counter[str] = field(default_factory=Counter)
    misses: Counter[str] = field(default_factory=Counter)
    prefix_queries: Counter[tuple[str, str]] = field(default_factory=Counter)
    prefix_hits: Counter[tuple[str, str]] = field(default_factory=Counter)
    swap_bytes: Counter[str] = field(default_factory=lambda: Counter({"in": 0, "out": 0}))
    recomputed_tokens: int = 0
    recomputed_hits: int = 0
    expired: int = 0
    adapter_stall_s: float = 0.0
    longest_adapter_wait_s: float = 0.0
    ttft_error_s: float = 0.0
    adapter_news: AdapterNews = field(default_factory=lambda: AdapterNews([], []))

    def count_prefix(self, owner: tuple[str, str], *, n_tokens: int, n_hit: int) -> None:
        """One admission; of more owners than can be kept the longest known becomes part of `OTHERS`."""
        self.prefix_queries[owner] += n_tokens
        self.prefix_hits[owner] += n_hit
        if len(self.prefix_queries) > KEPT_OWNERS:
            oldest = next(known for known in self.prefix_queries if known != OTHERS)
            self.prefix_queries[OTHERS] += self.prefix_queries.pop(oldest)
            self.prefix_hits[OTHERS] += self.prefix_hits.pop(oldest)

    def count_adapter_wait(self, key: AdapterKey, seconds: float) -> None:
        self.adapter_stall_s += seconds
        self.longest_adapter_wait_s = max(self.longest_adapter_wait_s, seconds)
        self.adapter_news.stalls.append((key, seconds))

    def note_evicted(self, keys: list[AdapterKey]) -> list[AdapterKey]:
        """These have left the arena; returns them."""
        self.adapter_news.evicted.extend(keys)
        return keys

    def take_adapter_news(self) -> AdapterNews | None:
        """What has happened since the last call; None for nothing."""
        news = self.adapter_news
        if not (news.evicted or news.stalls):
            return None
        self.adapter_news = AdapterNews([], [])
        return news

    def count_ttft(self, *, predicted_s: float, actual_s: float) -> None:
        self.ttft_error_s += ERROR_MEMORY * (abs(predicted_s - actual_s) - self.ttft_error_s)
