"""The requests of described tenants, made one by one as their time comes.

Each group of tenants draws from seeded sources of its own, so adding a group changes nothing about the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from random import Random

from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.scheduling.plan import SamplingParams
from lorikeet_engine.scheduling.request import Request
from lorikeet_engine.simulation.workload.adapter_catalogue import AdapterCatalogue
from lorikeet_engine.simulation.workload.arrival import N_WORDS, Arrival, random_tokens
from lorikeet_engine.simulation.workload.description import TenantGroup, Workload
from lorikeet_engine.simulation.workload.distributions import Zipf

GREEDY = SamplingParams()


class GroupRequests:
    """Draws what one group asks for."""

    def __init__(
        self, group: TenantGroup, catalogue: AdapterCatalogue, seed: int, max_model_len: int, n_words: int
    ) -> None:
        self.group = group
        self._source = Random(f"{seed}/{group.name}/requests")
        self._tenants = group.tenant_names()
        self._keys = catalogue.add_group(group, self._source)
        self._zipf = Zipf(group.adapters.count, group.adapters.zipf) if group.adapters else None
        self._prefixes: dict[tuple[str, int], tuple[int, ...]] = {}
        self._equal: dict[int, tuple[int, ...]] = {}
        self._max_model_len = max_model_len
        self._n_words = n_words
        self._n = 0

    def draw(self, at: float) -> Arrival:
        source, group = self._source, self.group
        adapter = self._adapter()
        tenant = adapter.tenant if adapter else source.choice(self._tenants)
        n_output = group.output.draw(source)
        if group.max_tokens:
            n_output = min(n_output, group.max_tokens)
        prompt = self._prompt(tenant, self._max_model_len - max(n_output, group.max_tokens))
        self._n += 1
        request = Request(
            request_id=f"{group.name}#{self._n}",
            tenant=tenant,
            weight=group.weight,
            prompt=prompt,
            max_tokens=group.max_tokens or n_output,
            sampling=GREEDY,
            adapter=adapter,
            cache_salt=tenant.encode(),
            ignore_eos=not group.max_tokens,
        )
        abort_after_s = 0.0
        if group.aborts and source.random() < group.aborts.share:
            abort_after_s = source.expovariate(1 / group.aborts.after_s)
        return Arrival(at, request, n_output, abort_after_s)

    def _adapter(self) -> AdapterKey | None:
        adapters = self.group.adapters
        if adapters is None or self._zipf is None:
            return None
        if adapters.base_share and self._source.random() < adapters.base_share:
            return None
        return self._keys[self._zipf.draw(self._source)]

    def _prompt(self, tenant: str, longest: int) -> tuple[int, ...]:
        """A shared head, when the draw says so, and a tail that nobody else has; clipped to the context."""
        if self.group.has_equal_prompts:
            return self._equal_prompt(min(self.group.prompt.draw(self._source), max(longest, 1)))
        shared = self.group.shared_prefixes
        head: tuple[int, ...] = ()
        if shared and self._source.random() < shared.share:
            variant = (tenant, self._source.randrange(shared.variants))
            if variant not in self._prefixes:
                self._prefixes[variant] = random_tokens(self._source, shared.tokens, self._n_words)
            head = self._prefixes[variant]
        n_tail = max(self.group.prompt.draw(self._source) - len(head), 1)
        return (head + random_tokens(self._source, n_tail, self._n_words))[: max(longest, 1)]

    def _equal_prompt(self, length: int) -> tuple[int, ...]:
        if length not in self._equal:
            self._equal[length] = random_tokens(self._source, length, self._n_words)
        return self._equal[length]


class TenantTraffic:
    """All groups together. Closed groups send again when an earlier request has ended.

    Prompts are made of tokens below `n_words`; answers that take all that was asked for do not end before.
    """

    def __init__(self, workload: Workload, catalogue: AdapterCatalogue, n_words: int = N_WORDS) -> None:
        self._end_s = workload.duration_s or float("inf")
        self._n_left = workload.n_requests or None
        self._due: list[tuple[float, int, int]] = []  # (time, order of being settled, group)
        self._n_settled = 0
        self._groups = [
            GroupRequests(group, catalogue, workload.seed, workload.engine.max_model_len, n_words)
            for group in workload.tenants
        ]
        self._times: list[Iterator[float] | None] = []
        self._closed: dict[str, int] = {}  # request id -> closed group that waits for its end
        self._free_s: dict[int, float] = {}  # closed group -> when the next of its clients may send
        for index, group in enumerate(workload.tenants):
            arrivals = group.arrivals
            if arrivals.kind == "closed":
                self._times.append(None)
                for _ in range(arrivals.concurrency):
                    self._settle_closed(arrivals.start_s, index)
            else:
                self._times.append(arrivals.times(Random(f"{workload.seed}/{group.name}/arrivals")))
                self._settle_next(index)

    def next_at(self) -> float | None:
        return self._due[0][0] if self._due and self._n_left != 0 else None

    def take(self, now: float) -> list[Arrival]:
        arrivals: list[Arrival] = []
        while self._due and self._due[0][0] <= now and self._n_left != 0:
            at, _, index = heappop(self._due)
            arrival = self._groups[index].draw(at)
            arrivals.append(arrival)
            if self._n_left is not None:
                self._n_left -= 1
            if self._times[index] is None:
                self._closed[arrival.request.request_id] = index
            else:
                self._settle_next(index)
        return arrivals

    def on_ended(self, request_id: str, now: float) -> None:
        index = self._closed.pop(request_id, None)
        if index is not None:
            self._settle_closed(now + self._groups[index].group.arrivals.think_s, index)

    def _settle_next(self, index: int) -> None:
        times = self._times[index]
        assert times is not None, "only open groups have times of their own"
        self._settle(next(times), index)

    def _settle_closed(self, at: float, index: int) -> None:
        at = max(at, self._free_s.get(index, 0.0))
        self._free_s[index] = at + self._groups[index].group.arrivals.apart_s
        self._settle(at, index)

    def _settle(self, at: float, index: int) -> None:
        stop_s = self._groups[index].group.arrivals.stop_s or self._end_s
        if at < min(stop_s, self._end_s):
            self._n_settled += 1
            heappush(self._due, (at, self._n_settled, index))
