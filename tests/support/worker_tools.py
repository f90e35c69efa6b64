"""A worker's tools for tests: the real jail, a certifier that measures nothing, and an engine that answers by rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from lorikeet_adapters.modules import ModuleTable
from lorikeet_adapters.sandbox.validating import validate_in_jail
from lorikeet_engine.certification.measured import Measured
from lorikeet_engine.protocol import EngineInfo, RequestCounts
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.jobs.runner import JobRunner
from lorikeet_platform.registry.work.purging import VersionPurger
from lorikeet_platform.registry.work.retirement import VersionRetirer
from lorikeet_platform.registry.work.tools import Jail, WorkerTools
from lorikeet_platform.registry.work.validating.job import VersionValidator
from tests.support.lora_files import TABLE

MAX_RANK = 8
DAY_US = 24 * 3_600 * 1_000_000
WELL_MEASURED = Measured(
    base_model_digest="b" * 64,
    effect=0.25,
    oracle="peft",
    max_logit_difference=1e-5,
    logit_scale=10.0,
    greedy_agreement=1.0,
    own_max_logit_difference=0.0,
    own_unchanged=True,
    neighbour_max_logit_difference=0.0,
    neighbours_unchanged=True,
    n_probes=4,
    n_tokens=64,
    warnings=(),
)


@dataclass
class ScriptedCertifier:
    """Says what it was told to; `step` runs inside `measure`."""

    measured: Measured = WELL_MEASURED
    step: Callable[[], None] = lambda: None
    seen: list[str] = field(default_factory=list)
    is_closed: bool = False

    def measure(self, *, folder: Path, image: Path, digest: str, serving_dtype: str) -> Measured:
        assert serving_dtype in ("bfloat16", "float16", "float32")
        self.seen.append(digest)
        assert image.is_file()
        assert (folder / "adapter_config.json").is_file()
        self.step()
        return self.measured

    def will_say(self, **changes: Any) -> None:
        self.measured = replace(self.measured, **changes)

    def close(self) -> None:
        self.is_closed = True


@dataclass
class ScriptedEngineLink:
    """An engine without a model: its tokens follow from the prompt and the adapter.

    Attributes:
        fault: raised by every call.
        disturbs: answers differ when several questions come at once.
        running: requests on an adapter, by (tenant, digest).
    """

    fault: Exception | None = None
    warm_fault: Exception | None = None
    room: int = 1 << 30
    dtype: str = "float32"
    model_digest: str = WELL_MEASURED.base_model_digest
    disturbs: bool = False
    running: dict[tuple[str, str], int] = field(default_factory=dict)
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    is_closed: bool = False

    def info(self) -> EngineInfo:
        self._note("info")
        return EngineInfo(
            model_name="tiny",
            model_digest=self.model_digest,
            device="cpu",
            dtype=self.dtype,
            max_model_len=64,
            block_size=16,
            vocab=1000,
        )

    def adapter_room(self) -> int:
        self._note("room")
        return self.room

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(len(word) for word in text.split())

    def warm(self, tenant: str, digest: str) -> None:
        self._note("warm", tenant, digest)
        if self.warm_fault is not None:
            raise self.warm_fault

    def retire(self, tenant: str, digest: str, *, force: bool = False) -> None:
        self._note("retire", tenant, digest, force)
        if force:
            self.running.pop((tenant, digest), None)

    def running_on(self, tenant: str, digest: str) -> int:
        self._note("running", tenant, digest)
        return self.running.get((tenant, digest), 0)

    def answers(
        self, tenant: str, questions: Sequence[tuple[str | None, tuple[int, ...]]], n_tokens: int
    ) -> list[tuple[int, ...]]:
        self._note("answers", tenant, len(questions))
        noise = len(questions) if self.disturbs else 0
        return [
            tuple(hash((digest, prompt, noise, index)) % 1000 for index in range(n_tokens))
            for digest, prompt in questions
        ]

    def counts(self, request_ids: Sequence[str] = ()) -> Sequence[RequestCounts]:
        self._note("counts", *request_ids)
        return []

    def settled(self, request_ids: Sequence[str]) -> None:
        self._note("settled", *request_ids)

    def close(self) -> None:
        self.is_closed = True

    def named(self, name: str) -> list[list[Any]]:
        """The calls of one kind, without their name."""
        return [arguments for kind, *arguments in self.calls if kind == name]

    def _note(self, *call: Any) -> None:
        self.calls.append(call)
        if self.fault is not None:
            raise self.fault


@dataclass
class ScriptedTools:
    """All three, to be scripted one by one; `jail` may be exchanged before the runner is made."""

    jail: Jail = field(default_factory=lambda: real_jail(TABLE))
    certifier: ScriptedCertifier = field(default_factory=ScriptedCertifier)
    engine: ScriptedEngineLink = field(default_factory=ScriptedEngineLink)

    def for_worker(self) -> WorkerTools:
        return WorkerTools(
            jail=lambda files, *, image: self.jail(files, image=image), certifier=self.certifier, engine=self.engine
        )


def real_jail(table: ModuleTable, *, max_rank: int = MAX_RANK) -> Jail:
    return partial(validate_in_jail, table=table, max_rank=max_rank)


def job_runner(context: PlatformContext, tools: ScriptedTools | None = None) -> JobRunner:
    """All three kinds of jobs on a context's database, store and clock."""
    given = (tools or ScriptedTools()).for_worker()
    db, store, clock = context.db, context.store, context.clock
    return JobRunner(
        db,
        {
            "validate": VersionValidator(
                db=db,
                store=store,
                tools=given,
                base_model=context.settings.model_name,
                temporary_dir=context.settings.temporary_dir,
                keep_rejected_us=context.settings.retention.rejected_days * DAY_US,
                clock=clock,
            ),
            "retire": VersionRetirer(db=db, engine=given.engine, clock=clock),
            "purge": VersionPurger(db=db, store=store, clock=clock),
        },
        clock=clock,
    )
