"""Fetching adapter images in the background: read, verify, pack; the loop only polls.

Owns two threads and the set of loads in progress. It does not know the arena: a loaded image goes to whoever asked.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import torch

from lorikeet_adapters.errors import AdapterError
from lorikeet_adapters.image import AdapterImage, pack_image
from lorikeet_adapters.modules import ModuleTable
from lorikeet_engine.errors import AdapterUnavailable
from lorikeet_engine.identity import AdapterKey

N_THREADS = 2


class NormalisedSource(Protocol):
    """Where verified, normalised adapters come from (`lorikeet_adapters.source.AdapterSource`)."""

    def read_normalised(self, tenant: str, digest: str) -> bytes: ...


@dataclass(frozen=True, slots=True)
class LoadedAdapter:
    """The outcome of one load: exactly one of `image` and `error` is set."""

    key: AdapterKey
    image: AdapterImage | None
    error: AdapterUnavailable | None


class AdapterLoader:
    """At most one load of an adapter is in progress, however often it is asked for."""

    def __init__(self, source: NormalisedSource, table: ModuleTable, dtype: torch.dtype, max_rank: int) -> None:
        self._source = source
        self._table = table
        self._dtype = dtype
        self._max_rank = max_rank
        self._pool = ThreadPoolExecutor(N_THREADS, thread_name_prefix="adapter-load")
        self._loads: dict[AdapterKey, Future[LoadedAdapter]] = {}

    def start(self, key: AdapterKey) -> None:
        if key not in self._loads:
            self._loads[key] = self._pool.submit(self._load, key)

    def poll(self) -> list[LoadedAdapter]:
        """Take the loads that have ended since the last call; never waits."""
        ended = [key for key, load in self._loads.items() if load.done()]
        return [self._loads.pop(key).result() for key in ended]

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _load(self, key: AdapterKey) -> LoadedAdapter:
        try:
            normalised = self._source.read_normalised(key.tenant, key.digest)
            image = pack_image(normalised, digest=key.digest, table=self._table, dtype=self._dtype)
        except AdapterError as error:
            return LoadedAdapter(key, None, AdapterUnavailable(f"adapter {key.digest[:12]}: {error}", param="model"))
        # A file that cannot be read, or memory that cannot be had, ends this load and not the engine.
        except (OSError, MemoryError, ValueError) as error:
            reason = f"adapter {key.digest[:12]} cannot be loaded: {type(error).__name__}"
            return LoadedAdapter(key, None, AdapterUnavailable(reason, param="model"))
        if image.rank_max > self._max_rank:
            reason = f"adapter {key.digest[:12]} has rank {image.rank_max}, allowed here: at most {self._max_rank}"
            return LoadedAdapter(key, None, AdapterUnavailable(reason, param="model"))
        return LoadedAdapter(key, image, None)
