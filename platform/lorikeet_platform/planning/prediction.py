"""What users of an engine will see, from a run of the simulator: the scheduler that serves, with steps of a given pace.

A workload that would take too long to simulate is answered by formulas over the same pace.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from lorikeet_engine.cost import StepShape, total_seconds, ttft_seconds
from lorikeet_engine.simulation.assembly import Hardware, Simulation, build_world
from lorikeet_engine.simulation.effort import ADAPTER_S, ROW_S, STEP_S, Effort, TooMuchWork, request_seconds
from lorikeet_engine.simulation.workload.description import Adapters, EngineKnobs, TenantGroup, Workload
from lorikeet_engine.simulation.workload.distributions import Arrivals, Lengths
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.planning.learning.pace import Pace, StepSeconds
from lorikeet_platform.planning.subject import Subject

PATIENCE_S = 0.5  # what a simulation should cost the CPU by what is known before, ...
MOST_S = 2 * PATIENCE_S  # ... and where it is given up, however it came to that
WAVES = 3  # requests of each client of a closed loop: the first ones begin together, unlike any later
ARRIVALS = 200  # requests of an open loop
APART_S = 0.001  # between two clients' requests: the first of a wave begins alone
NO_LIMIT = 1 << 40
MOST_BUSY = 0.95  # with prompts; a queue for more than an engine can do has no mean
ROUNDS = 60  # of the fixed point between how many run and how long they take


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one engine is asked for: by `concurrency` clients in a closed loop, or at random, so many a second.

    Attributes:
        n_adapters: each asked for equally often; 0 = the base model alone.
        targets: modules of the adapters, by PEFT's names.
        requests_per_client: of a closed loop; 0 = enough for a mean.
        pause_s: between an answer and the client's next request.
    """

    prompt_tokens: int
    output_tokens: int
    concurrency: int = 0
    requests_per_s: float = 0.0
    n_adapters: int = 0
    rank: int = 16
    targets: tuple[str, ...] = ("q_proj", "v_proj")
    requests_per_client: int = 0
    pause_s: float = 0.003

    @property
    def context(self) -> int:
        return self.prompt_tokens + self.output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Means over requests.

    Attributes:
        peak_running: the most requests that ran at once.
        preemptions: how often one had to give way for memory; None where nothing was simulated.
    """

    ttft_s: float
    itl_s: float
    total_s: float
    output_tokens_per_s: float
    peak_running: int
    preemptions: int | None = None

    @property
    def is_simulated(self) -> bool:
        return self.preemptions is not None


def predict(subject: Subject, seats: int, load: Load, pace: Pace, *, host_overhead_s: float = 0.0) -> Prediction:
    """Of an engine where `seats` requests may run at once.

    Raises:
        PlatformError: the workload leaves what the pace was measured on.
    """
    chunk = subject.config.max_num_batched_tokens
    at_once = _running_at_once(subject, seats, load, pace)
    n_requests = _affordable(subject, load, at_once)
    prediction = _simulated(subject, seats, load, pace, n_requests, host_overhead_s) if n_requests else None
    if prediction is None:
        prediction = _by_formulas(load, at_once, pace, chunk=chunk, host_overhead_s=host_overhead_s)
    pace.check()
    return prediction


def _affordable(subject: Subject, load: Load, at_once: int) -> int:
    """How many requests to simulate; 0 = too few for a mean could be.

    Those that run at once share steps; a prompt takes as many as it has chunks, whatever runs beside it.
    """
    wanted = (load.requests_per_client or WAVES) * load.concurrency if load.concurrency else ARRIVALS
    needed = load.concurrency or 4 * at_once
    config = subject.config
    n_chunks = -(-load.prompt_tokens // config.max_num_batched_tokens)
    request_s = request_seconds(prompt_tokens=load.prompt_tokens, block_size=config.block_size)
    request_s += (n_chunks + load.output_tokens) * ROW_S + (n_chunks + load.output_tokens / max(1, at_once)) * STEP_S
    n_requests = min(wanted, int((PATIENCE_S - load.n_adapters * ADAPTER_S) / request_s))
    return n_requests if n_requests >= min(needed, wanted) else 0


def _simulated(
    subject: Subject, seats: int, load: Load, pace: Pace, n_requests: int, host_overhead_s: float
) -> Prediction | None:
    """None where it came to more work than it may be; the pace has forgotten what it was asked about then."""
    config = subject.config
    taken = {field.name for field in fields(EngineKnobs)} & {field.name for field in fields(config)}
    values = {name: getattr(config, name) for name in taken} | {
        "max_num_seqs": seats,
        "max_model_len": subject.max_model_len,
        "kv_cache_bytes": subject.n_blocks * subject.block_bytes,
        "max_queued_requests": NO_LIMIT,
        "max_queued_tokens": NO_LIMIT,
        "ttft_deadline": 0.0,
        "enable_prefix_caching": False,  # no prompt has a prefix of another one
        "tenant_queue_share": 1.0,
        "tenant_seat_share": 1.0,
        "tenant_kv_share": 1.0,
        "tenant_arena_share": 1.0,
    }
    workload = Workload(
        name="plan",
        model=subject.model,
        device=subject.device,
        n_requests=n_requests,
        host_overhead_s=host_overhead_s,
        engine=EngineKnobs(**values),
        tenants=(_clients(load),),
    )
    watched = _Watched(pace)
    hardware = Hardware(
        spec=subject.spec,
        cost=subject.cost,
        profile=subject.profile,
        itemsize=subject.itemsize,
        step_seconds=watched,
    )
    watched.world = world = build_world(workload, hardware)
    world.effort = Effort(MOST_S, config.block_size)
    try:
        world.run()
    except TooMuchWork:
        pace.forget()
        return None
    return _seen(world, load, watched.peak_running)


class _Watched:
    """The pace, and how many requests are in the step that it is asked about."""

    def __init__(self, pace: Pace) -> None:
        self.world: Simulation | None = None
        self.peak_running = 0
        self._pace = pace

    def __call__(self, shape: StepShape) -> float:
        if self.world is not None:
            self.peak_running = max(self.peak_running, self.world.loop.scheduler.n_running)
        return self._pace(shape)


def _clients(load: Load) -> TenantGroup:
    return TenantGroup(
        name="plan",
        arrivals=Arrivals(kind="closed", concurrency=load.concurrency, think_s=load.pause_s, apart_s=APART_S)
        if load.concurrency
        else Arrivals(kind="poisson", rate=load.requests_per_s),
        prompt=Lengths(value=load.prompt_tokens),
        output=Lengths(value=load.output_tokens),
        has_equal_prompts=True,
        adapters=Adapters(count=load.n_adapters, zipf=0.0, ranks=(load.rank,), targets=load.targets)
        if load.n_adapters
        else None,
    )


def _seen(world: Simulation, load: Load, peak_running: int) -> Prediction:
    recorder = world.recorder
    record = next(iter(recorder.tenants.values()))
    n = len(record.e2e)
    if n == 0:
        reasons = ", ".join({*recorder.refusals, *recorder.failures})
        param = "adapters" if load.n_adapters else "prompt_tokens"
        raise PlatformError("invalid_value", f"The engine would serve none of these requests: {reasons}.", param)
    itl_s = record.gaps.total_s / max(1, len(record.gaps))
    tokens_per_s = recorder.output_tokens / max(world.clock.now, 1e-9)
    if not load.concurrency:  # its start and end are not the steady state that was asked about
        tokens_per_s = load.requests_per_s * load.output_tokens
    return Prediction(
        ttft_s=sum(record.ttft) / max(1, len(record.ttft)),
        itl_s=itl_s,
        total_s=sum(record.e2e) / n,
        output_tokens_per_s=tokens_per_s,
        peak_running=peak_running,
        preemptions=sum(world.loop.scheduler.counters.preemptions.values()),
    )


# -- by formulas -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Phases:
    """Seconds of a step that only decodes, and what one request's prompt adds to the steps it is computed in."""

    decode_s: float
    prompt_s: float


def _running_at_once(subject: Subject, seats: int, load: Load, pace: Pace) -> int:
    """Requests that run together: all, as many as there are seats and blocks, or as many as their time adds up to."""
    room = max(1, min(seats, subject.n_blocks // subject.request_blocks(load.context)))
    if load.concurrency:
        return min(load.concurrency, room)
    running = 1.0
    for _ in range(ROUNDS):
        at_once = max(1, round(running))
        phases = _phases(load, at_once, pace.step_seconds, subject.config.max_num_batched_tokens)
        running = (running + load.requests_per_s * _by_phases(load, at_once, phases).total_s) / 2
        if running >= room:
            return room
    return max(1, round(running))


def _by_formulas(load: Load, at_once: int, pace: Pace, *, chunk: int, host_overhead_s: float) -> Prediction:
    return _by_phases(load, at_once, _phases(load, at_once, lambda shape: pace(shape) + host_overhead_s, chunk))


def _by_phases(load: Load, at_once: int, phases: Phases) -> Prediction:
    """Clients of a closed loop ask in waves, so on average half of the others' prompts come first; who comes at random
    waits for the one that is being computed (M/D/1), and for all that come while it makes its answer."""
    others = at_once - 1
    if load.concurrency:
        prefill_s = phases.decode_s + phases.prompt_s * (1 + others / 2)
        itl_s = phases.decode_s + phases.prompt_s * others / 2 / load.output_tokens
    else:
        busy = min(load.requests_per_s * phases.prompt_s, MOST_BUSY)
        prefill_s = phases.decode_s + phases.prompt_s * (1 + busy / 2 / (1 - busy))
        itl_s = phases.decode_s + phases.prompt_s * others / load.output_tokens
    alone_s = total_seconds(prefill_s, load.output_tokens, itl_s)
    ttft_s = ttft_seconds(max(0, load.concurrency - at_once) / at_once * alone_s, prefill_s)
    requests_per_s = at_once / (alone_s + load.pause_s) if load.concurrency else load.requests_per_s
    return Prediction(
        ttft_s=ttft_s,
        itl_s=itl_s,
        total_s=total_seconds(ttft_s, load.output_tokens, itl_s),
        output_tokens_per_s=requests_per_s * load.output_tokens,
        peak_running=at_once,
    )


def _phases(load: Load, at_once: int, step_seconds: StepSeconds, chunk: int) -> Phases:
    """Rows in the middle of their answers, and a prompt in as many equal chunks as the budget needs."""
    n_chunks = -(-load.prompt_tokens // chunk)
    context = load.prompt_tokens + load.output_tokens // 2
    decode = StepShape(n_decode=at_once, decode_context=at_once * context, n_sampled=at_once)
    mixed = replace(
        decode,
        n_prefill=-(-load.prompt_tokens // n_chunks),
        prefill_pairs=load.prompt_tokens * (load.prompt_tokens + 1) // 2 // n_chunks,
        prefill_context=load.prompt_tokens * (n_chunks - 1) // 2 // n_chunks,
        n_sampled=at_once + 1,
    )
    decode_s = step_seconds(decode)
    return Phases(decode_s, n_chunks * max(0.0, step_seconds(mixed) - decode_s))
