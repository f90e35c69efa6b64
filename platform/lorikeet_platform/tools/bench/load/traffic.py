"""Requests on their way to a server, in the order in which they are due; drawn ahead of their time.

Each group draws from seeded sources of its own, so adding a group changes nothing about the others. Nothing here knows
a connection: a closed group hears from outside that one of its requests has ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from pathlib import Path
from random import Random
from typing import Protocol

from lorikeet_engine.simulation.workload.distributions import Zipf
from lorikeet_engine.simulation.workload.recorded_traffic import RecordedRequest, read_trace
from lorikeet_engine.simulation.workload.strict_records import DescriptionError
from lorikeet_platform.tools.bench.load.address import trouble_with
from lorikeet_platform.tools.bench.load.description import Load, LoadGroup, TenantKey, key_of
from lorikeet_platform.tools.bench.load.pauses import Paused, pause_after
from lorikeet_platform.tools.bench.load.prompts import Prompts
from lorikeet_platform.tools.bench.load.target import Target

NO_GROUP = -1


@dataclass(frozen=True, slots=True)
class Ask:
    """One request. `at` is when it is due, in seconds since the start; `group` hears of its end.

    `n_unserved`: how many of its client's requests before it, in a row, were not served.
    """

    at: float
    group: int
    tenant: str
    adapter: str
    key: str
    body: bytes
    n_prompt: int
    abort_after_s: float
    n_unserved: int = 0


class Traffic(Protocol):
    """Where requests come from; `paused` tells of clients that were not served and waited before they asked again."""

    paused: Paused

    def next_at(self) -> float | None:
        """When the next one is due, as far as that is settled; None when none is."""

    def take(self) -> Ask:
        """The next one."""

    def on_ended(self, ask: Ask, now: float, *, is_served: bool = True, retry_after_s: float | None = None) -> None:
        """It has its answer, or will never get one; `retry_after_s` is how long the server asks to be left alone."""


def traffic_of(load: Load, target: Target) -> Traffic:
    """Raises DescriptionError for a key or a trace that is not there, and for a key beside a password."""
    owners: list[LoadGroup | TenantKey] = [*load.tenants, *load.keys]
    has_keys = any(owner.api_key_env or owner.api_key_file for owner in owners)
    if trouble := trouble_with(target.url, has_key=has_keys):
        raise DescriptionError(trouble)
    return TraceTraffic(load, target) if load.trace else GroupTraffic(load, target)


def warm_up_asks(load: Load, target: Target) -> list[Ask]:
    """Requests of the load's kinds whose prompts nobody sends later, or the prefix cache would be warm as well."""
    apart = replace(load, seed=load.seed + (1 << 32), n_requests=0, duration_s=load.duration_s or 1.0, keys=load.keys)
    if load.trace:
        traffic: Traffic = TraceTraffic(apart, target)
        return [traffic.take() for _ in range(target.n_warmups) if traffic.next_at() is not None]
    draws = [GroupDraws(group, target, apart.seed) for group in load.tenants]
    return [draws[i % len(draws)].draw(0.0, NO_GROUP) for i in range(target.n_warmups)]


class GroupDraws:
    """Draws what one group asks for."""

    def __init__(self, group: LoadGroup, target: Target, seed: int) -> None:
        self.group = group
        self._target = target
        self._key = key_of(group, target.api_key)
        self._source = Random(f"{seed}/{group.name}/requests")
        self._prompts = Prompts(target.prompts, target.vocab_size)
        self._zipf = Zipf(len(group.adapters.names), group.adapters.zipf) if group.adapters else None
        self._heads: dict[int, list[int]] = {}

    def draw(self, at: float, index: int) -> Ask:
        source, group = self._source, self.group
        adapter = self._adapter()
        n_output = group.output.draw(source)
        units = self._units()
        abort_after_s = 0.0
        if group.aborts and source.random() < group.aborts.share:
            abort_after_s = source.expovariate(1 / group.aborts.after_s)
        body = self._target.body(adapter or self._target.model, units, n_output)
        return Ask(at, index, group.name, adapter, self._key, body, len(units), abort_after_s)

    def _adapter(self) -> str:
        adapters = self.group.adapters
        if adapters is None or self._zipf is None:
            return ""
        if adapters.base_share and self._source.random() < adapters.base_share:
            return ""
        return adapters.names[self._zipf.draw(self._source)]

    def _units(self) -> list[int]:
        """A shared head, when the draw says so, and a tail that nobody else has."""
        source, shared = self._source, self.group.shared_prefixes
        head: list[int] = []
        if shared and source.random() < shared.share:
            variant = source.randrange(shared.variants)
            if variant not in self._heads:
                self._heads[variant] = self._prompts.draw(source, shared.tokens)
            head = self._heads[variant]
        n_tail = max(self.group.prompt.draw(source) - len(head), 1)
        return head + self._prompts.draw(source, n_tail)


class GroupTraffic:
    """All groups together. Closed groups send again when an earlier request has ended."""

    def __init__(self, load: Load, target: Target) -> None:
        self.paused = Paused()
        self._end_s = load.duration_s or float("inf")
        self._n_left = load.n_requests or None
        self._due: list[tuple[float, int, int, int]] = []  # (time, order of being settled, group, requests not served)
        self._n_settled = 0
        self._draws = [GroupDraws(group, target, load.seed) for group in load.tenants]
        self._stock: list[Ask] = []  # one of each group, drawn while nothing was due
        self._times: list[Iterator[float] | None] = []
        self._free_s: dict[int, float] = {}  # closed group -> when the next of its clients may send
        for index, group in enumerate(load.tenants):
            self._stock.append(self._draws[index].draw(0.0, index))
            arrivals = group.arrivals
            if arrivals.kind == "closed":
                self._times.append(None)
                for _ in range(arrivals.concurrency):
                    self._settle(arrivals.start_s, index)
            else:
                self._times.append(arrivals.times(Random(f"{load.seed}/{group.name}/arrivals")))
                self._settle_next(index)

    def next_at(self) -> float | None:
        self._keep_apart()
        return self._due[0][0] if self._due and self._n_left != 0 else None

    def take(self) -> Ask:
        self._keep_apart()
        at, _, index, n_unserved = heappop(self._due)
        self._free_s[index] = at + self._draws[index].group.arrivals.apart_s
        ask = replace(self._stock[index], at=at, n_unserved=n_unserved)
        self._stock[index] = self._draws[index].draw(0.0, index)
        if self._n_left is not None:
            self._n_left -= 1
        if self._times[index] is not None:
            self._settle_next(index)
        return ask

    def on_ended(self, ask: Ask, now: float, *, is_served: bool = True, retry_after_s: float | None = None) -> None:
        if ask.group == NO_GROUP or self._times[ask.group] is not None:
            return
        n_unserved = 0 if is_served else ask.n_unserved + 1
        pause_s = pause_after(n_unserved, retry_after_s) if n_unserved else 0.0
        think_s = self._draws[ask.group].group.arrivals.think_s
        self._settle(now + max(think_s, pause_s), ask.group, n_unserved)
        if n_unserved and self._n_left != 0 and now < self._end_s:
            self.paused.n += 1
            self.paused.seconds += min(pause_s, self._end_s - now)

    def _settle_next(self, index: int) -> None:
        times = self._times[index]
        assert times is not None, "only open groups have times of their own"
        self._settle(next(times), index)

    def _keep_apart(self) -> None:
        """Puts off what comes too soon after another client of its group; open groups have no such distance."""
        while self._due:
            at, _, index, n_unserved = self._due[0]
            free_s = self._free_s.get(index, 0.0)
            if self._times[index] is not None or at >= free_s:
                return
            heappop(self._due)
            self._settle(free_s, index, n_unserved)

    def _settle(self, at: float, index: int, n_unserved: int = 0) -> None:
        stop_s = self._draws[index].group.arrivals.stop_s or self._end_s
        if at < min(stop_s, self._end_s):
            self._n_settled += 1
            heappush(self._due, (at, self._n_settled, index, n_unserved))


class TraceTraffic:
    """A trace as it was recorded; tokens are drawn, since traces hold lengths and not what people wrote."""

    def __init__(self, load: Load, target: Target) -> None:
        self.paused = Paused()
        self._target = target
        self._seed = load.seed
        self._end_s = load.duration_s or float("inf")
        self._n_left = load.n_requests or float("inf")
        self._keys = {owner.tenant: key_of(owner, target.api_key) for owner in load.keys}
        self._source = Random(f"{load.seed}/trace")
        self._prompts = Prompts(target.prompts, target.vocab_size)
        self._lines = read_trace(Path(load.trace))
        self._next = self._ask(next(self._lines, None))

    def next_at(self) -> float | None:
        if self._next is None or self._next.at >= self._end_s or self._n_left < 1:
            return None
        return self._next.at

    def take(self) -> Ask:
        ask = self._next
        assert ask is not None, "there is one when next_at says so"
        self._next = self._ask(next(self._lines, None))
        self._n_left -= 1
        return ask

    def on_ended(self, ask: Ask, now: float, *, is_served: bool = True, retry_after_s: float | None = None) -> None:
        """What was recorded comes when it came, whatever became of the requests before it."""

    def _ask(self, recorded: RecordedRequest | None) -> Ask | None:
        if recorded is None:
            return None
        head: list[int] = []
        if recorded.prefix:
            head_source = Random(f"{self._seed}/{recorded.tenant}/{recorded.prefix}")
            head = self._prompts.draw(head_source, recorded.prefix_tokens)
        units = head + self._prompts.draw(self._source, recorded.prompt_tokens - len(head))
        return Ask(
            at=recorded.at,
            group=NO_GROUP,
            tenant=recorded.tenant,
            adapter=recorded.adapter,
            key=self._keys.get(recorded.tenant, self._target.api_key),
            body=self._target.body(
                recorded.adapter or self._target.model, units, recorded.max_tokens or recorded.output_tokens
            ),
            n_prompt=len(units),
            abort_after_s=recorded.abort_after_s,
        )
