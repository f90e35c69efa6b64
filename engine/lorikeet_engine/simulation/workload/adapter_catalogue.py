"""The adapters of a workload, by key: how large each is."""

from __future__ import annotations

from random import Random

from lorikeet_adapters.manifest import GRAIN
from lorikeet_adapters.modules import MODULES
from lorikeet_engine.cost import adapter_bytes
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.model_spec import ModelSpec
from lorikeet_engine.simulation.workload.description import TenantGroup
from lorikeet_engine.simulation.workload.strict_records import DescriptionError

ITEMSIZE = 2


class AdapterCatalogue:
    """Sizes in grains of every adapter that a request may name."""

    def __init__(self, spec: ModelSpec, itemsize: int = ITEMSIZE) -> None:
        self._spec = spec
        self._itemsize = itemsize
        self._sizes: dict[tuple[int, tuple[str, ...]], int] = {}
        self.n_grains: dict[AdapterKey, int] = {}

    @property
    def grain_bytes(self) -> int:
        return GRAIN * self._itemsize

    def add(self, key: AdapterKey, rank: int, targets: tuple[str, ...]) -> None:
        size = self._sizes.get((rank, targets))
        if size is None:
            size = self._sizes[rank, targets] = -(-self._bytes(rank, targets) // self.grain_bytes)
        self.n_grains[key] = size

    def add_group(self, group: TenantGroup, source: Random) -> list[AdapterKey]:
        """The group's adapters, the most popular first, dealt out to its tenants in turn."""
        adapters = group.adapters
        if adapters is None:
            return []
        tenants = group.tenant_names()
        keys = [AdapterKey(tenants[i % len(tenants)], f"{group.name}/{i}") for i in range(adapters.count)]
        for key in keys:
            self.add(key, source.choice(adapters.ranks), adapters.targets)
        return keys

    def _bytes(self, rank: int, targets: tuple[str, ...]) -> int:
        modules = [module for module in MODULES if module.rpartition(".")[2] in targets]
        if len(modules) < len(set(targets)):
            known = ", ".join(module.rpartition(".")[2] for module in MODULES)
            raise DescriptionError(f"adapter targets are {', '.join(targets)}; known: {known}")
        return adapter_bytes(self._spec, rank, itemsize=self._itemsize, modules=modules)
