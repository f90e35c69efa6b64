"""Fetching adapter images in the background: read, verify, pack; the loop only polls.

Owns two threads and the set of loads in progress. It does not know the arena: a loaded image goes to whoever asked.
Two may wait for the store, but one computes at a time, verifying included: the steps that go on meanwhile need their
core and the interpreter, and two that work beside them took both.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Lock
from typing import Protocol

import torch

from lorikeet_adapters.errors import AdapterError, AdapterImageDamaged
from lorikeet_adapters.image import AdapterImage, BaseLinears, pack_image
from lorikeet_adapters.modules import ModuleTable
from lorikeet_engine.errors import AdapterDamaged, AdapterUnavailable
from lorikeet_engine.identity import AdapterKey

N_THREADS = 2


class NormalisedSource(Protocol):
    """Where normalised adapters come from, not yet verified (`lorikeet_adapters.source.AdapterSource`)."""

    def read_normalised(self, tenant: str, digest: str) -> bytes: ...


@dataclass(frozen=True, slots=True)
class LoadedAdapter:
    """The outcome of one load: exactly one of `image` and `error` is set."""

    key: AdapterKey
    image: AdapterImage | None
    error: AdapterUnavailable | None


class AdapterLoader:
    """At most one load of an adapter is in progress, however often it is asked for."""

    def __init__(
        self,
        source: NormalisedSource,
        table: ModuleTable,
        dtype: torch.dtype,
        max_rank: int,
        *,
        base: BaseLinears | None = None,
        pins_memory: bool = False,
    ) -> None:
        """
        base: what DoRA is packed with; without it no such adapter is.
        pins_memory: images lie where a GPU's copy engine can read them while the host goes on.
        """
        self._source = source
        self._table = table
        self._dtype = dtype
        self._max_rank = max_rank
        self._base = base
        self._pins_memory = pins_memory
        self._pool = ThreadPoolExecutor(N_THREADS, thread_name_prefix="adapter-load")
        self._packing = Lock()
        self._loads: dict[AdapterKey, Future[AdapterImage]] = {}

    def start(self, key: AdapterKey) -> None:
        if key not in self._loads:
            self._loads[key] = self._pool.submit(self._load, key)

    def poll(self) -> list[LoadedAdapter]:
        """Take the loads that have ended since the last call; never waits and never raises."""
        ended = [key for key, load in self._loads.items() if load.done()]
        return [self._outcome(key, self._loads.pop(key)) for key in ended]

    def close(self) -> None:
        """Wait for the loads in progress and forget the rest."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _load(self, key: AdapterKey) -> AdapterImage:
        normalised = self._source.read_normalised(key.tenant, key.digest)
        with self._packing:
            image = pack_image(normalised, digest=key.digest, table=self._table, dtype=self._dtype, base=self._base)
        if image.rank_max > self._max_rank:
            raise AdapterUnavailable(f"its rank is {image.rank_max}, allowed here: at most {self._max_rank}")
        return replace(image, extent=image.extent.pin_memory()) if self._pins_memory else image

    def _outcome(self, key: AdapterKey, load: Future[AdapterImage]) -> LoadedAdapter:
        error = load.exception()
        if error is None:
            return LoadedAdapter(key, load.result(), None)
        # Whatever a file does to the packer ends this load and not the engine. What the store or the packer did not
        # foresee is named by its class only: its text may hold a path.
        foreseen = isinstance(error, AdapterError | AdapterUnavailable)
        reason = str(error) if foreseen else type(error).__name__
        refusal = AdapterDamaged if isinstance(error, AdapterImageDamaged) else AdapterUnavailable
        return LoadedAdapter(key, None, refusal(f"adapter {key.digest[:12]} cannot be loaded: {reason}", param="model"))
