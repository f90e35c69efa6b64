"""Ports to what a worker uses beside database and store: a jail, a certifier, the engine. Made by the worker's root."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from lorikeet_adapters.sandbox.record import ValidatedRecord
from lorikeet_engine.certification.measured import Measured
from lorikeet_engine.protocol import EngineInfo, RequestCounts


class Jail(Protocol):
    """Reads an adapter's files where a bad one can do no harm."""

    def __call__(self, files: Mapping[str, Path], /, *, image: Path) -> ValidatedRecord:
        """The adapter in `files`, by name; its normalised file is written to `image`.

        Raises:
            AdapterRejected: the content cannot be served.
            JailBroken: the jail ended without an answer.
        """


class Certifier(Protocol):
    """Computes with an adapter and compares."""

    def measure(self, *, folder: Path, image: Path, digest: str, serving_dtype: str) -> Measured:
        """`serving_dtype` is the engine's number format. Raises AdapterRejected, CertifierBroken."""

    def close(self) -> None: ...


class Engine(Protocol):
    """The serving engine; every call raises EngineUnavailable when there is none."""

    def info(self) -> EngineInfo: ...

    def adapter_room(self) -> int:
        """Bytes of the largest adapter that the engine can load."""

    def encode(self, text: str) -> tuple[int, ...]: ...

    def warm(self, tenant: str, digest: str) -> None:
        """Raises AdapterUnavailable, AdapterDamaged."""

    def retire(self, tenant: str, digest: str, *, force: bool = False) -> None: ...

    def running_on(self, tenant: str, digest: str) -> int:
        """Requests that run on the adapter or wait for it."""

    def answers(
        self, tenant: str, questions: Sequence[tuple[str | None, tuple[int, ...]]], n_tokens: int
    ) -> list[tuple[int, ...]]:
        """The greedy tokens after each prompt, asked at once; a question's digest is None for the base model."""

    def counts(self, request_ids: Sequence[str] = ()) -> Sequence[RequestCounts]:
        """What requests used: those named, or those that ended and that nobody said are settled."""

    def settled(self, request_ids: Sequence[str]) -> None:
        """The engine may forget them."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTools:
    """What jobs are done with; each starts what it needs by itself, at its first use."""

    jail: Jail
    certifier: Certifier
    engine: Engine

    def close(self) -> None:
        """End what was started; a call that still waits fails."""
        self.certifier.close()
        self.engine.close()
