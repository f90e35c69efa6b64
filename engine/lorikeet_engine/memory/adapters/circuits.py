"""Which adapters could not be loaded of late, so that nobody waits for what has just failed.

After a failed load the adapter's circuit is open: requests get the same error at once, with the time after which
trying again makes sense. Then the next request tries; each further failure doubles the time. A load that works closes
the circuit, and some minutes in which nobody tried forget it. What the store holds damaged is not tried again by
itself. Bounded: the oldest failures are forgotten, which costs a try. Knows no clock.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from lorikeet_engine.errors import AdapterDamaged, EngineError
from lorikeet_engine.identity import AdapterKey

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
QUIET_S = 300.0  # after the end of a pause: who tries then is told of a new trouble, not of the old one
KEPT_CIRCUITS = 4096


@dataclass(slots=True)
class _Circuit:
    error: EngineError
    pause_s: float
    until_s: float


class AdapterCircuits:
    """The failures by adapter. Every call costs O(1)."""

    def __init__(self) -> None:
        self._circuits: OrderedDict[AdapterKey, _Circuit] = OrderedDict()  # the oldest failure first

    def __len__(self) -> int:
        return len(self._circuits)

    def refusal(self, key: AdapterKey, now: float) -> EngineError | None:
        """What a request for the adapter gets while its circuit is open; None when it may be tried."""
        circuit = self._circuits.get(key)
        if circuit is None or circuit.until_s <= now:
            return None
        return _with_time(circuit, now)

    def fail(self, key: AdapterKey, error: EngineError, now: float) -> EngineError:
        """A load ended with `error`: open the circuit. The answer is what whoever waits for the adapter gets."""
        earlier = self._circuits.pop(key, None)
        is_again = earlier is not None and now - earlier.until_s < QUIET_S
        pause_s = min(2.0 * earlier.pause_s, LONGEST_PAUSE_S) if earlier and is_again else FIRST_PAUSE_S
        if isinstance(error, AdapterDamaged):
            circuit = _Circuit(error, LONGEST_PAUSE_S, float("inf"))
        else:
            circuit = _Circuit(error, pause_s, now + pause_s)
        self._circuits[key] = circuit
        if len(self._circuits) > KEPT_CIRCUITS:
            self._circuits.popitem(last=False)
        return _with_time(circuit, now)

    def close(self, key: AdapterKey) -> None:
        """A load worked."""
        self._circuits.pop(key, None)


def _with_time(circuit: _Circuit, now: float) -> EngineError:
    """The error anew, with how long to wait; None where waiting does not help."""
    error, left_s = circuit.error, circuit.until_s - now
    return type(error)(
        error.message, param=error.param, retry_after_s=left_s if left_s < float("inf") else None, reason=error.reason
    )
