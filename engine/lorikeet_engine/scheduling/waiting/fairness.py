"""Whose turn it is: weighted virtual token counters (VTC, arXiv 2401.00588), one a tenant.

A counter grows with the service that a tenant receives, divided by its weight; the tenant with the smallest one is
next. A tenant that comes back from idleness is lifted to the smallest counter of those at work, less a small credit
that does not add up: idle time earns no more than one prompt that goes before a stranger's. It keeps a larger counter,
so going idle for a moment erases no debt.

Between two continuously backlogged tenants the received service per weight differs by at most about twice the largest
single charge: a whole prompt, one step's tokens at the input price, or the running tokens at the output price.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import islice

from lorikeet_engine.scheduling.counters import TenantLoad
from lorikeet_engine.scheduling.request import Request
from lorikeet_engine.scheduling.waiting.margin import Margin

LOOKAHEAD = 8  # requests of one tenant that are looked at when its first ones cannot run
PACE_WINDOW_S, PACE_SHARE = 1.0, 0.15  # how often the pace of a tenant is measured, and how much the newest counts
KEPT_ACCOUNTS = 4096  # idle accounts are dropped beyond this, those without debt first


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Virtual tokens charged for one token of service.

    Attributes:
        adapter_per_byte: for each byte of adapters that a step reads; the rows that share an adapter share its price.
    """

    input: float = 1.0
    cached: float = 0.1
    output: float = 2.0
    adapter_per_byte: float = 0.0


@dataclass(slots=True, eq=False)
class TenantAccount:
    """One tenant: what it received, what waits, what runs.

    Attributes:
        margin: what has to be left before the deadline, by how late its requests came.
        lifted: the part of `service` that it was lifted by and never received.
        waiting: never admitted requests, by arrival.
        waiting_tokens: prompt tokens of these that are expected to be computed.
        n_computed: prompt tokens computed for it, in all.
        pace: those computed for it a second while it had requests waiting, 0 as long as that is not known.
        is_shedding: whether the predictor refuses this tenant's requests at the moment (hysteresis).
    """

    tenant: str
    serial: int
    margin: Margin
    weight: float = 1.0
    service: float = 0.0
    lifted: float = 0.0
    waiting: OrderedDict[str, Request] = field(default_factory=OrderedDict)
    waiting_tokens: int = 0
    n_running: int = 0
    n_parked: int = 0  # preempted, waiting to be resumed
    n_computed: int = 0
    pace: float = 0.0
    is_shedding: bool = False
    _paced_since_s: float = 0.0
    _paced_from: int = 0

    @property
    def is_idle(self) -> bool:
        return not (self.waiting or self.n_running or self.n_parked)

    def start_pacing(self, now: float) -> None:
        """Its queue begins to fill: what it got before says nothing about what it gets from here on."""
        self.pace, self._paced_since_s, self._paced_from = 0.0, now, self.n_computed

    def take_pace(self, now: float) -> None:
        """Bring `pace` up to date, at most once in `PACE_WINDOW_S`."""
        seconds = now - self._paced_since_s
        if self.waiting and seconds >= PACE_WINDOW_S:
            newest = (self.n_computed - self._paced_from) / seconds
            self.pace = self.pace + PACE_SHARE * (newest - self.pace) if self.pace else newest
            self._paced_since_s, self._paced_from = now, self.n_computed

    def charge(self, virtual_tokens: float) -> None:
        self.service += virtual_tokens / self.weight


class FairQueue:
    """The accounts of all tenants, and the order in which their requests are tried."""

    def __init__(self, *, quantum: float, deadline_s: float, idle_credit: float = 0.0) -> None:
        self._quantum = quantum
        self._idle_credit = idle_credit
        self._deadline_s = deadline_s
        self._accounts: dict[str, TenantAccount] = {}
        self._serial = 0
        self._served_minimum = 0.0
        self.n_waiting = 0
        self.waiting_tokens = 0

    def account(self, tenant: str, weight: float) -> TenantAccount:
        """The tenant's account, with the weight it has now."""
        account = self._accounts.get(tenant)
        if account is None:
            self._forget_idle()
            self._serial += 1
            account = self._accounts[tenant] = TenantAccount(tenant, self._serial, Margin(self._deadline_s))
        account.weight = weight
        return account

    def wake(self, account: TenantAccount) -> None:
        """Lift the counter of a tenant that was idle until now; called before its work is counted."""
        if account.is_idle:
            active = self._active_services()
            # The highest that the smallest counter ever was: a credit that was given does not lower it for the next.
            self._served_minimum = max(self._served_minimum, min(active, default=0.0))
            lifted_to = self._served_minimum - (self._idle_credit if active else 0.0)
            if lifted_to > account.service:
                account.lifted += lifted_to - account.service
                account.service = lifted_to

    def push(self, account: TenantAccount, request: Request, n_tokens: int, now: float) -> None:
        self.wake(account)
        if not account.waiting:
            account.start_pacing(now)
        account.waiting[request.request_id] = request
        self.n_waiting += 1
        self.expect(account, n_tokens)

    def remove(self, account: TenantAccount, request: Request, n_tokens: int) -> None:
        del account.waiting[request.request_id]
        self.n_waiting -= 1
        self.expect(account, -n_tokens)

    def expect(self, account: TenantAccount, n_tokens: int) -> None:
        """So many more prompt tokens of its waiting requests have to be computed, or fewer."""
        account.waiting_tokens += n_tokens
        self.waiting_tokens += n_tokens

    def active_weight(self, account: TenantAccount) -> float:
        """Weights of the tenants at work, `account` among them."""
        others = sum(other.weight for other in self._accounts.values() if not other.is_idle and other is not account)
        return others + account.weight

    def smallest_service(self) -> float:
        """The smallest counter of the tenants at work."""
        return min(self._active_services(), default=self._served_minimum)

    def _active_services(self) -> list[float]:
        return [account.service for account in self._accounts.values() if not account.is_idle]

    def loads(self) -> list[TenantLoad]:
        """Every tenant at work."""
        return [
            TenantLoad(
                a.tenant, len(a.waiting) + a.n_parked, a.n_running, a.service, a.weight, received=a.service - a.lifted
            )
            for a in self._accounts.values()
            if not a.is_idle
        ]

    def candidates(
        self, is_local: Callable[[Request], bool], *, lookahead: int | None = LOOKAHEAD
    ) -> Iterator[Request]:
        """Requests to try, in order; the caller removes those it admits before it asks for the next.

        Least served tenant first, each with up to `lookahead` of its oldest requests (None: with all of them). Before
        that, as the locality quantum allows (DLPM, arXiv 2501.14312), come heads whose adapter is in the batch already:
        they cost no further adapter read. The backlogged tenants share the quantum, so that the least served waits for
        one quantum of others' work at most, however many there are.
        """
        backlog = [(account.service, account.serial, account) for account in self._accounts.values() if account.waiting]
        if not backlog:
            return
        heapify(backlog)
        self._served_minimum = max(self._served_minimum, backlog[0][0])
        if self._quantum:
            yield from self._local_heads(backlog, is_local)
        while backlog:
            service, serial, account = heappop(backlog)
            if account.service > service:  # served in the meantime: back to its new place
                heappush(backlog, (account.service, serial, account))
                continue
            if (yield from self._first_of(account, lookahead)):
                heappush(backlog, (account.service, serial, account))

    def _local_heads(
        self, backlog: list[tuple[float, int, TenantAccount]], is_local: Callable[[Request], bool]
    ) -> Iterator[Request]:
        limit = backlog[0][0] + self._quantum / len(backlog)
        for _, _, account in list(backlog):
            while account.waiting and account.service <= limit:
                head = next(iter(account.waiting.values()))
                if not is_local(head):
                    break
                yield head
                if head.request_id in account.waiting:
                    break

    def _first_of(self, account: TenantAccount, lookahead: int | None) -> Generator[Request, None, bool]:
        """Offer the tenant's requests until one is taken; the generator's value says whether one was."""
        for request in list(islice(account.waiting.values(), lookahead)):
            yield request
            if request.request_id not in account.waiting:
                return True
        return False

    def _forget_idle(self) -> None:
        if len(self._accounts) < KEPT_ACCOUNTS:
            return
        floor = self.smallest_service()
        for tenant, account in list(self._accounts.items()):
            if account.is_idle and account.service <= floor:
                del self._accounts[tenant]
