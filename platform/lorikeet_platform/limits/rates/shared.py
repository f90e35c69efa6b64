"""Buckets in Redis, for all gateways together: one script, by the server's clock, that charges several or none.

The script says in Lua what `gcra` says: numbers there are exact only up to 2^53, so that times go as pairs of
microseconds and grains, and whatever needs a product is computed here. A key lives until its bucket is full again.
All keys of a call are one tenant's and carry it in braces, so that a cluster has them in one place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

from limits.storage import RedisStorage, storage_from_string
from redis.backoff import NoBackoff
from redis.retry import Retry

from lorikeet_platform.clock import MINUTE
from lorikeet_platform.limits.rates import gcra
from lorikeet_platform.limits.rates.buckets import Charge, Outcome, Receipt, Refund

# Slower than this is as good as lost. It bounds every wait for an answer, so that nothing hangs.
BUDGET_S: Final = 0.02
CONNECT_BUDGETS: Final = 5  # opening a connection takes several round trips

_SCRIPT: Final = b"""
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local at = 1
local function take()
  at = at + 1
  return tonumber(ARGV[at - 1])
end
local function less(a, a_grains, b, b_grains)
  return a < b or (a == b and a_grains < b_grains)
end
local function add(a, a_grains, b, b_grains, value)
  local micros, grains = a + b, a_grains + b_grains
  if grains >= value then micros, grains = micros + 1, grains - value end
  return micros, grains
end
local function sub(a, a_grains, b, b_grains, value)
  local micros, grains = a - b, a_grains - b_grains
  if grains < 0 then micros, grains = micros - 1, grains + value end
  return micros, grains
end
local function load(key, value)
  local stored = redis.call('GET', key)
  if not stored then return now, 0 end
  local micros, grains = string.match(stored, '^(%d+):(%d+)$')
  micros, grains = tonumber(micros), math.min(tonumber(grains), value - 1)
  if micros < now then return now, 0 end
  return micros, grains
end
local function store(key, micros, grains)
  local lives_ms = math.max(1, math.ceil((micros + 1 - now) / 1000))
  redis.call('SET', key, string.format('%.0f:%.0f', micros, grains), 'PX', lives_ms)
end

local n_refunds = take()
for i = 1, n_refunds do
  local value, back, back_grains, till, till_grains = take(), take(), take(), take(), take()
  if till >= now then
    local micros, grains = load(KEYS[i], value)
    local left, left_grains = till - now, till_grains
    if less(left, left_grains, back, back_grains) then back, back_grains = left, left_grains end
    micros, grains = sub(micros, grains, back, back_grains, value)
    if micros < now then micros, grains = now, 0 end
    store(KEYS[i], micros, grains)
  end
end

local passed, found, answer = 1, {}, {1, now}
for i = n_refunds + 1, #KEYS do
  local value, window, window_grains, cost, cost_grains, debt = take(), take(), take(), take(), take(), take()
  local micros, grains = load(KEYS[i], value)
  local is_moved = false
  if less(micros, grains, now + debt, 0) then micros, grains, is_moved = now + debt, 0, debt > 0 end
  local last, last_grains = now + window, window_grains
  if less(last, last_grains, micros, grains) then micros, grains, is_moved = last, last_grains, true end
  local new, new_grains = add(micros, grains, cost, cost_grains, value)
  if less(last, last_grains, new, new_grains) then passed = 0 end
  found[i] = {micros, grains, new, new_grains, is_moved or cost > 0 or cost_grains > 0, is_moved}
end
answer[1] = passed
for i = n_refunds + 1, #KEYS do
  local each = found[i]
  local first = passed == 1 and 3 or 1
  if each[passed == 1 and 5 or 6] then store(KEYS[i], each[first], each[first + 1]) end
  answer[#answer + 1] = each[first]
  answer[#answer + 1] = each[first + 1]
end
return answer
"""


class SharedBuckets:
    """Opens nothing before the first call. Every call may raise one of `errors`: Redis is lost, or too slow.

    Args:
        url: of Redis, in any form that `limits` knows.
    """

    def __init__(self, url: str, *, budget_s: float = BUDGET_S) -> None:
        storage = cast(RedisStorage, storage_from_string(url, **_options(budget_s)))
        self.errors: tuple[type[Exception], ...] = (cast(type[Exception], storage.base_exceptions), OSError)
        self._connection: Any = storage.get_connection()
        self._script: Any = self._connection.register_script(_SCRIPT)

    def ping(self) -> None:
        self._connection.ping()

    def close(self) -> None:
        self._connection.close()

    def charge(
        self,
        tenant_id: str,
        charges: Sequence[Charge],
        *,
        refunds: Sequence[Refund] = (),
        debts: Sequence[int] | None = None,
    ) -> Outcome:
        """Make refunds, then charge all of the buckets or none.

        Args:
            debts: for every charge, in how many microseconds the bucket is full at the earliest, whatever is stored.
        """
        passed, now, *times = self.run(tenant_id, charges, refunds, debts or (0,) * len(charges))
        states = list(zip(times[::2], times[1::2], strict=True))
        readings, receipts = [], []
        for each, state in zip(charges, states, strict=True):
            due = gcra.unpack(each.rate, state)
            readings.append(gcra.read(each.rate, due, now, 0 if passed else each.cost))
            if passed and each.cost:
                receipts.append(Receipt(each.name, each.rate, each.cost, state, is_shared=True))
        return Outcome(bool(passed), tuple(readings), tuple(receipts))

    def refund(self, tenant_id: str, refunds: Sequence[Refund]) -> None:
        self.run(tenant_id, (), refunds, ())

    def run(
        self, tenant_id: str, charges: Sequence[Charge], refunds: Sequence[Refund], debts: Sequence[int]
    ) -> list[int]:
        """What the script answers: whether the charges passed, the server's clock, and the stored times."""
        keys = [_key(tenant_id, refund.receipt.name) for refund in refunds]
        keys += [_key(tenant_id, charge.name) for charge in charges]
        numbers = [len(refunds)]
        for refund in refunds:
            receipt = refund.receipt
            numbers += (receipt.rate.value, *divmod(refund.cost * MINUTE, receipt.rate.value), *receipt.until)
        for charge, debt in zip(charges, debts, strict=True):
            rate = charge.rate
            numbers += (rate.value, *divmod(rate.window, rate.value), *divmod(charge.cost * MINUTE, rate.value), debt)
        answer: list[int] = self._script(keys, numbers)
        return answer


def _options(budget_s: float) -> dict[str, Any]:
    """No second try, and nothing said to the server when a connection opens: each would wait once more."""
    return {
        "socket_timeout": budget_s,
        "socket_connect_timeout": CONNECT_BUDGETS * budget_s,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "driver_info": None,
    }


def _key(tenant_id: str, name: str) -> str:
    return f"lorikeet:{{{tenant_id}}}:{name}"
