"""A runner and a loader without tensors, for everything that is decided rather than computed."""

from __future__ import annotations

from dataclasses import dataclass, field

from lorikeet_engine.errors import AdapterUnavailable, EngineError
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.loop import EngineLoop
from lorikeet_engine.memory.adapter_residency import AdapterResidency
from lorikeet_engine.memory.kv_manager import KvManager
from lorikeet_engine.scheduling.plan import SamplingParams, StepPlan, StepResult
from lorikeet_engine.scheduling.request import Request
from lorikeet_engine.scheduling.scheduler import Scheduler, SchedulerLimits

EOS = 0
VOCAB = 1000


def next_token(tokens: tuple[int, ...], adapter: AdapterKey | None) -> int:
    """The scripted model: a pure function of the whole sequence and the adapter; never EOS."""
    return 1 + (sum(tokens) * 31 + len(tokens) * 7 + (hash(adapter.digest) % 97 if adapter else 0)) % (VOCAB - 1)


def answer_alone(prompt: tuple[int, ...], n_tokens: int, adapter: AdapterKey | None) -> list[int]:
    """What the scripted model answers when nothing else runs."""
    tokens = prompt
    for _ in range(n_tokens):
        tokens += (next_token(tokens, adapter),)
    return list(tokens[len(prompt) :])


@dataclass
class ScriptedRunner:
    """Keeps every token in the KV slot its block table names and 'computes' from there, so misuse of blocks shows."""

    block_size: int
    slots: dict[tuple[int, int], int] = field(default_factory=dict)
    extents: dict[int, AdapterKey] = field(default_factory=dict)
    plans: list[StepPlan] = field(default_factory=list)
    fail_next: bool = False
    not_finite: set[str] = field(default_factory=set)

    def execute(self, plan: StepPlan) -> StepResult:
        if self.fail_next:
            self.fail_next = False
            raise RuntimeError("scripted failure")
        self.plans.append(plan)
        sampled = {}
        for row in plan.rows:
            if row.adapter:
                assert self.extents[row.extent] == row.adapter, "the row's extent holds another adapter"
            for position, token in enumerate(row.token_ids, start=row.start):
                self.slots[row.block_table[position // self.block_size], position % self.block_size] = token
            if row.samples and row.request_id not in self.not_finite:
                length = row.start + len(row.token_ids)
                sequence = tuple(
                    self.slots[row.block_table[p // self.block_size], p % self.block_size] for p in range(length)
                )
                sampled[row.request_id] = next_token(sequence, row.adapter)
        return StepResult(plan.step_id, sampled)

    def write_extent(self, base_grain: int, image: ScriptedImage) -> None:
        self.extents[base_grain] = image.key

    def move_extent(self, source_grain: int, target_grain: int, n_grains: int) -> None:  # noqa: ARG002
        self.extents[target_grain] = self.extents.pop(source_grain)


@dataclass(frozen=True)
class ScriptedImage:
    key: AdapterKey
    n_grains: int


@dataclass(frozen=True)
class ScriptedLoad:
    key: AdapterKey
    image: ScriptedImage | None
    error: EngineError | None


@dataclass
class ScriptedLoader:
    """Finishes a load `delay` polls after it was started; digests that start with `bad` cannot be loaded."""

    n_grains: int = 4
    delay: int = 1
    pending: list[tuple[AdapterKey, int]] = field(default_factory=list)
    started: list[AdapterKey] = field(default_factory=list)

    def start(self, key: AdapterKey) -> None:
        self.started.append(key)
        self.pending.append((key, self.delay))

    def poll(self) -> list[ScriptedLoad]:
        self.pending = [(key, polls - 1) for key, polls in self.pending]
        done = [key for key, polls in self.pending if polls <= 0]
        self.pending = [(key, polls) for key, polls in self.pending if polls > 0]
        return [
            ScriptedLoad(key, None, AdapterUnavailable("scripted damage"))
            if key.digest.startswith("bad")
            else ScriptedLoad(key, ScriptedImage(key, self.n_grains), None)
            for key in done
        ]


@dataclass
class ScriptedEngine:
    """A whole deciding side over scripted parts."""

    loop: EngineLoop
    runner: ScriptedRunner
    loader: ScriptedLoader


def scripted_engine(
    *,
    n_blocks: int = 33,
    block_size: int = 4,
    max_model_len: int = 64,
    max_num_seqs: int = 8,
    max_num_batched_tokens: int = 16,
    max_adapters_per_step: int = 4,
    max_queued_requests: int = 100,
    arena_grains: int = 16,
    adapter_grains: int = 4,
    load_delay: int = 1,
    max_loading: int = 4,
) -> ScriptedEngine:
    kv = KvManager(n_blocks=n_blocks, block_size=block_size, block_bytes=64)
    residency = AdapterResidency(n_grains=arena_grains, grain_bytes=32, max_loading=max_loading)
    limits = SchedulerLimits(
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        max_adapters_per_step=max_adapters_per_step,
        max_queued_requests=max_queued_requests,
        eos_token_ids=frozenset({EOS}),
        vocab=VOCAB,
    )
    runner, loader = ScriptedRunner(block_size), ScriptedLoader(adapter_grains, load_delay)
    scheduler = Scheduler(limits, kv, residency)
    loop = EngineLoop(scheduler=scheduler, kv=kv, residency=residency, loader=loader, runner=runner)
    return ScriptedEngine(loop, runner, loader)


def request(
    request_id: str,
    *,
    n_prompt: int = 5,
    max_tokens: int = 4,
    adapter: str = "",
    tenant: str = "tenant",
) -> Request:
    return Request(
        request_id=request_id,
        tenant=tenant,
        prompt=tuple(1 + (i * 13 + len(request_id)) % (VOCAB - 1) for i in range(n_prompt)),
        max_tokens=max_tokens,
        sampling=SamplingParams(),
        adapter=AdapterKey(tenant, adapter) if adapter else None,
    )
