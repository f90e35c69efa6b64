"""A runner and a loader without tensors, for everything that is decided rather than computed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from lorikeet_engine.cost import DeviceProfile, ModelCost
from lorikeet_engine.errors import AdapterUnavailable, DeviceLost, EngineError
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.loop import EngineLoop
from lorikeet_engine.memory.adapters.residency import AdapterResidency
from lorikeet_engine.memory.kv.manager import KvManager
from lorikeet_engine.observing.observatory import Observatory
from lorikeet_engine.profiling.timeline import NOT_PROFILED, Timeline
from lorikeet_engine.scheduling.limits import SchedulerLimits
from lorikeet_engine.scheduling.plan import SamplingParams, StepPlan, StepResult
from lorikeet_engine.scheduling.request import Request
from lorikeet_engine.scheduling.scheduler import Scheduler

EOS = 0
VOCAB = 1000
STEP_S = 1.0  # how long a scripted step takes
COST = ModelCost(
    layer_params=1000,
    head_params=100,
    attention_flops_per_pair=10,
    kv_bytes_per_token=16,
    layer_bytes=2000,
    head_bytes=200,
)
PROFILE = DeviceProfile(
    name="scripted",
    peak_flops=1e6,
    peak_bandwidth=1e6,
    memory_bytes=1 << 30,
    host_bandwidth=1e5,
    disk_bandwidth=1e5,
    mfu_prefill=0.5,
    mbu=0.8,
    step_overhead_s=0.001,
)


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
    step_s: float = STEP_S
    write_s: float = 0.0  # how long an adapter's way into the arena takes
    waited_s: float = 0.0  # of it, for what was launched; time has passed meanwhile
    slots: dict[tuple[int, int], int] = field(default_factory=dict)
    extents: dict[int, AdapterKey] = field(default_factory=dict)
    plans: list[StepPlan] = field(default_factory=list)
    failed: list[StepPlan] = field(default_factory=list)
    fail_next: bool = False
    is_lost: bool = False
    not_finite: set[str] = field(default_factory=set)
    host: dict[int, dict[int, int]] = field(default_factory=dict)
    launched: list[StepPlan] = field(default_factory=list)

    def launch(self, plan: StepPlan) -> None:
        """The device carries the step out as late as it may."""
        assert not self.launched, "two steps at once"
        self.launched.append(plan)

    def collect(self) -> StepResult:
        return replace(self.execute(self.launched.pop()), waited_s=self.waited_s)

    def execute(self, plan: StepPlan) -> StepResult:
        if self.is_lost:
            raise DeviceLost("scripted")
        if self.fail_next:
            self.fail_next = False
            self.failed.append(plan)
            raise RuntimeError("scripted failure")
        self.plans.append(plan)
        self._copy_blocks(plan)
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
        return StepResult(plan.step_id, sampled, self.step_s)

    def _copy_blocks(self, plan: StepPlan) -> None:
        for source, target in plan.swap_outs:
            self.host[target] = self._read(source)
        for source, target in plan.swap_ins:
            self._write(target, self.host.pop(source))
        for source, target in plan.copies:
            self._write(target, self._read(source))

    def _read(self, block: int) -> dict[int, int]:
        return {i: self.slots[block, i] for i in range(self.block_size) if (block, i) in self.slots}

    def _write(self, block: int, tokens: dict[int, int]) -> None:
        for i in range(self.block_size):
            self.slots.pop((block, i), None)
        self.slots.update({(block, i): token for i, token in tokens.items()})

    def write_extent(self, base_grain: int, image: ScriptedImage) -> float:
        self.extents[base_grain] = image.key
        return self.write_s

    def move_extent(self, source_grain: int, target_grain: int, n_grains: int) -> float:  # noqa: ARG002
        self.extents[target_grain] = self.extents.pop(source_grain)
        return 0.0


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
    """Finishes a load `delay` polls after it was started.

    Digests that start with `bad` cannot be loaded, but for an `error` of None.
    """

    n_grains: int = 4
    delay: int = 1
    error: EngineError | None = field(default_factory=lambda: AdapterUnavailable("scripted damage"))
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
            ScriptedLoad(key, None, self.error)
            if self.error and key.digest.startswith("bad")
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
    n_host_slots: int = 0,
    enable_prefix_caching: bool = True,
    arena_grains: int = 16,
    adapter_grains: int = 4,
    host_grains: int = 64,
    load_delay: int = 1,
    max_loading: int = 4,
    overlaps: bool = False,
    timeline: Timeline = NOT_PROFILED,
    **limits: Any,
) -> ScriptedEngine:
    """An engine over scripted parts; further names are fields of `SchedulerLimits`."""
    kv = KvManager(
        n_blocks=n_blocks,
        block_size=block_size,
        block_bytes=64,
        n_host_slots=n_host_slots,
        enable_prefix_caching=enable_prefix_caching,
    )
    residency = AdapterResidency(
        n_grains=arena_grains, grain_bytes=32, host_bytes=host_grains * 32, max_loading=max_loading
    )
    chosen: dict[str, Any] = {
        "max_model_len": 64,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 16,
        "max_adapters_per_step": 4,
        "max_queued_requests": 100,
        "eos_token_ids": frozenset({EOS}),
        "vocab": VOCAB,
    }
    runner, loader = ScriptedRunner(block_size), ScriptedLoader(adapter_grains, load_delay)
    scheduler = Scheduler(SchedulerLimits(**chosen | limits), kv, residency, cost=COST, profile=PROFILE)
    observatory = Observatory(tenants=scheduler.tenants, itemsize=2)
    loop = EngineLoop(
        scheduler=scheduler,
        kv=kv,
        residency=residency,
        loader=loader,
        runner=runner,
        cost=COST,
        launcher=runner if overlaps else None,
        timeline=timeline,
        observer=observatory,
    )
    return ScriptedEngine(loop, runner, loader)


def request(
    request_id: str,
    *,
    n_prompt: int = 5,
    max_tokens: int = 4,
    adapter: str = "",
    tenant: str = "tenant",
    prompt: tuple[int, ...] | None = None,
    **more: Any,
) -> Request:
    """A request whose prompt depends on its id, unless one is given."""
    own = tuple(1 + (i * 13 + sum(request_id.encode())) % (VOCAB - 1) for i in range(n_prompt))
    return Request(
        request_id=request_id,
        tenant=tenant,
        prompt=own if prompt is None else prompt,
        max_tokens=max_tokens,
        sampling=SamplingParams(),
        adapter=AdapterKey(tenant, adapter) if adapter else None,
        **more,
    )
