"""How the engine names an adapter: by content, per tenant."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class AdapterKey:
    """Identity of an adapter. Two tenants' equal files are two adapters: sharing would tell one what others hold."""

    tenant: str
    digest: str
