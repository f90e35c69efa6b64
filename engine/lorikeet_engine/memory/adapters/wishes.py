"""Which adapters are to be loaded once a load may start: first come first served inside a tenant, tenants in turn.

Taking tenants in turn keeps one that asks for a thousand adapters from standing before everybody else. Knows of
no room.
"""

from __future__ import annotations

from collections import OrderedDict

from lorikeet_engine.identity import AdapterKey


class LoadWishes:
    """Wishes that wait. At most one adapter is preferred: the scheduler's barrier, which nobody may overtake."""

    def __init__(self) -> None:
        self.preferred: AdapterKey | None = None
        self._by_tenant: OrderedDict[str, OrderedDict[AdapterKey, int]] = OrderedDict()

    def __contains__(self, key: AdapterKey) -> bool:
        return key in self._by_tenant.get(key.tenant, ())

    def add(self, key: AdapterKey, n_bytes: int) -> None:
        """Remember a wish, once; `n_bytes` is what its image is known to take, 0 if it is not."""
        self._by_tenant.setdefault(key.tenant, OrderedDict()).setdefault(key, n_bytes)

    def n_bytes(self, key: AdapterKey) -> int:
        return self._by_tenant[key.tenant][key]

    def discard(self, key: AdapterKey) -> None:
        keys = self._by_tenant.get(key.tenant)
        if keys is not None:
            keys.pop(key, None)
            if not keys:
                del self._by_tenant[key.tenant]

    def head(self) -> AdapterKey | None:
        """The wish to grant next."""
        if self.preferred is not None and self.preferred in self:
            return self.preferred
        for keys in self._by_tenant.values():
            return next(iter(keys))
        return None

    def grant(self, key: AdapterKey) -> None:
        """The load starts: the wish is gone, and the tenant's next one waits for the other tenants' turns."""
        self.discard(key)
        if key.tenant in self._by_tenant:
            self._by_tenant.move_to_end(key.tenant)
