"""Shared buckets as long as they answer in time; after that this process's own, at its share of the limits (R-17).

What was last read of a shared bucket is noted in the local one, so that losing Redis in the middle of a burst does not
begin a second one; and what was let through meanwhile is told to Redis when it is back, for the same reason.

Refunds go along with the tenant's next charge, or a moment later by themselves: nobody waits for one.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import structlog

from lorikeet_platform.clock import MINUTE
from lorikeet_platform.limits.rates import gcra
from lorikeet_platform.limits.rates.buckets import Charge, Outcome, Refund
from lorikeet_platform.limits.rates.local import LocalBuckets, monotonic_us
from lorikeet_platform.limits.rates.shared import SharedBuckets

log = structlog.get_logger(__name__)

LOST_FOR_S: Final = 5.0
REFUND_WITHIN_S: Final = 0.1
REFUNDS_AT_ONCE: Final = 32
WAITING_REFUNDS: Final = 1_000  # of one tenant; the oldest fall out, and time gives them back


class DegradingBuckets:
    """Thread-safe; `close` it.

    Args:
        n_live: how many gateways share the limits, as far as is known; asked at every charge while Redis is lost.
        on_change: told whether Redis is lost, when that changes.
    """

    def __init__(
        self,
        shared: SharedBuckets,
        *,
        n_live: Callable[[], int],
        on_change: Callable[[bool], None],
        lost_for_s: float = LOST_FOR_S,
    ) -> None:
        self._shared, self._local = shared, LocalBuckets()
        self._n_live, self._on_change, self._lost_for_s = n_live, on_change, lost_for_s
        self._lock = threading.Lock()  # for the next four
        self._is_lost = False
        self._refunds: dict[str, deque[Refund]] = {}  # by tenant
        self._owed: dict[str, int] = {}  # by bucket: when what was let through without Redis is paid for
        self._owed_until = 0
        self._wake, self._closing = threading.Event(), threading.Event()
        try:
            shared.ping()
        except shared.errors as error:
            self._lose(error)
        self._keeper = threading.Thread(target=self._keep, name="rate-limits", daemon=True)
        self._keeper.start()

    def charge(self, tenant_id: str, charges: Sequence[Charge]) -> Outcome:
        if self._is_lost:
            return self._charge_here(tenant_id, charges)
        refunds, debts = self._waiting_for(tenant_id), self._debts_of(charges)
        try:
            outcome = self._shared.charge(tenant_id, charges, refunds=refunds, debts=debts)
        except self._shared.errors as error:
            self._lose(error)
            return self._charge_here(tenant_id, charges)
        self._local.note(
            [(charge.name, reading.full_in) for charge, reading in zip(charges, outcome.readings, strict=True)]
        )
        return outcome

    def refund(self, tenant_id: str, refunds: Sequence[Refund]) -> None:
        here = [refund for refund in refunds if not refund.receipt.is_shared]
        if here:
            with self._lock:  # what is owed is what the local buckets held: both are lowered, or neither yet
                self._local.refund(tenant_id, here)
                self._owe_less(here)
        if len(here) == len(refunds):
            return
        with self._lock:
            waiting = self._refunds.setdefault(tenant_id, deque(maxlen=WAITING_REFUNDS))
            waiting.extend(refund for refund in refunds if refund.receipt.is_shared)
        self._wake.set()

    def close(self) -> None:
        self._closing.set()
        self._wake.set()
        self._keeper.join()
        self._shared.close()

    def _charge_here(self, tenant_id: str, charges: Sequence[Charge]) -> Outcome:
        n = max(1, self._n_live())
        mine = [replace(charge, rate=charge.rate.share_of(n)) for charge in charges]
        return self._local.charge(tenant_id, mine)

    def _waiting_for(self, tenant_id: str) -> list[Refund]:
        if not self._refunds:
            return []
        with self._lock:
            waiting = self._refunds.get(tenant_id)
            if waiting is None:
                return []
            taken = [waiting.popleft() for _ in range(min(len(waiting), REFUNDS_AT_ONCE))]
            if not waiting:
                del self._refunds[tenant_id]
            return taken

    def _debts_of(self, charges: Sequence[Charge]) -> list[int] | None:
        if not self._owed:
            return None
        with self._lock:
            now = monotonic_us()
            if now > self._owed_until:
                self._owed = {}
            return [max(0, self._owed.pop(charge.name, 0) - now) for charge in charges]

    def _owe_less(self, refunds: Sequence[Refund]) -> None:
        now = monotonic_us()
        for refund in refunds:
            receipt, owed = refund.receipt, self._owed.get(refund.receipt.name)
            if owed is not None:
                rate = receipt.rate
                until = gcra.unpack(rate, receipt.until)
                left = gcra.refund(rate, owed * rate.value, refund.cost, now, charged_until=until)
                self._owed[receipt.name] = -(-left // rate.value)

    def _lose(self, error: Exception) -> None:
        with self._lock:
            if self._is_lost:
                return
            self._is_lost = True
        log.error("rates are limited without Redis", error=type(error).__name__)
        self._on_change(True)
        self._wake.set()

    def _keep(self) -> None:
        """The thread that sends refunds nobody took along, and looks for a Redis that was lost."""
        while not self._closing.is_set():
            if self._is_lost:
                self._closing.wait(self._lost_for_s)
                self._look_for_it()
            else:
                self._wake.wait()
                self._closing.wait(REFUND_WITHIN_S)
                self._wake.clear()
                self._send_refunds()

    def _look_for_it(self) -> None:
        try:
            self._shared.ping()
        except self._shared.errors:
            return
        with self._lock:
            now = monotonic_us()
            self._owed = {name: now + debt for name, debt in self._local.debts().items()}
            self._owed_until = now + MINUTE
            self._is_lost = False
        log.info("rates are limited by Redis again")
        self._on_change(False)

    def _send_refunds(self) -> None:
        with self._lock:
            tenants = list(self._refunds)
        for tenant_id in tenants:
            while refunds := self._waiting_for(tenant_id):
                try:
                    self._shared.refund(tenant_id, refunds)
                except self._shared.errors as error:
                    self._lose(error)
                    return
