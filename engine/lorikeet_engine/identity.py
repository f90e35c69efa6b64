"""How the engine names an adapter: by content, per tenant."""

from __future__ import annotations

from typing import NamedTuple


class AdapterKey(NamedTuple):
    """Identity of an adapter. Two tenants' equal files are two adapters: sharing would tell one what others hold.

    A tuple, because every row of every step is grouped by it.
    """

    tenant: str
    digest: str
