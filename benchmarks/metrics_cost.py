"""What the engine's instruments cost: a step that is watched against one that is not, and what a scrape takes.

    python benchmarks/metrics_cost.py MODEL_DIR [--quick] [--json FILE] [--dtype float32]

Steps: an engine on one thread decodes 32 rows, watched in one step and not in the next, or the other way round. The
figure is the median of each pair's ratio, in processor time, which other work on the machine does not lengthen much.
Every row is another tenant's, since what belongs together is counted together. What watching takes by itself is shown
beside it, as the difference of two steps' times is no more exact than these are.

Scrapes: an engine that decides but does not compute has served 10,000 adapters of 200 tenants, and knows them all; its
health port is asked over HTTP again and again. Of the times on the clock the lowest tenth counts, since other work on
the machine only adds; of the processor time, both ends' together, the median. Publishing is what the loop itself does
for that, once a second.
"""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles

from figures import Figure, arguments, at_least, at_most, present

from lorikeet_engine.build import Engine, LoadedModel, build_engine, load_model
from lorikeet_engine.config import MIB, EngineConfig
from lorikeet_engine.cost import DEVICES, ModelCost, load_profile
from lorikeet_engine.errors import EngineError
from lorikeet_engine.health import HealthServer
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.loop import EngineLoop
from lorikeet_engine.measure import measure
from lorikeet_engine.memory.adapters.residency import AdapterResidency
from lorikeet_engine.memory.kv.manager import KvManager
from lorikeet_engine.metrics import families, render
from lorikeet_engine.observing.observatory import Observatory
from lorikeet_engine.observing.observer import NOT_OBSERVED, Observer, StepTaken
from lorikeet_engine.scheduling.events import Event
from lorikeet_engine.scheduling.limits import SchedulerLimits
from lorikeet_engine.scheduling.plan import SamplingParams, StepPlan, StepResult
from lorikeet_engine.scheduling.request import Request
from lorikeet_engine.scheduling.scheduler import Scheduler

ROWS, PROMPT, SPARE = 32, 64, 64
ADAPTERS, TENANTS, SEATS = 10_000, 200, 64
GRAINS, GRAIN_BYTES = 4, 32
STEP_S = 0.02
MOST_SLOWER, MOST_SCRAPE_MS, MOST_PUBLISH_MS = 1.02, 20.0, 10.0


def request(name: str, tenant: str, n_prompt: int, max_tokens: int, adapter: AdapterKey | None = None) -> Request:
    return Request(
        request_id=name,
        tenant=tenant,
        prompt=tuple(1 + (i * 31 + len(name)) % 400 for i in range(n_prompt)),
        max_tokens=max_tokens,
        sampling=SamplingParams(),
        adapter=adapter,
        ignore_eos=True,
    )


# -- steps -------------------------------------------------------------------------------------------------------------


def decoding_engine(model_dir: Path, model: LoadedModel, n_steps: int) -> Engine:
    """All rows decode, and none ends within so many steps."""
    config = EngineConfig(
        model_dir=model_dir,
        model_name="bench",
        store_url=str(model_dir),
        endpoint="ipc://bench",
        threads=1,
        max_num_seqs=ROWS,
        max_model_len=PROMPT + n_steps + SPARE,
        kv_cache_bytes=2048 * MIB,
        adapter_pool_bytes=16 * MIB,
        ttft_deadline=0.0,
    )
    engine = build_engine(config, model)
    requests = [request(f"r{row}", f"tenant{row}", PROMPT, n_steps + SPARE) for row in range(ROWS)]
    for one in requests:
        engine.loop.submit([one], 0.0)
    while not all(one.decodes for one in requests):
        engine.loop.step(0.0)
    return engine


class Watched:
    """An observer whose steps are timed."""

    def __init__(self, engine: Engine) -> None:
        self.observer = engine.loop.observer
        self.seconds: list[float] = []
        self._stepped = self.observer.stepped
        self.observer.stepped = self._timed  # type: ignore[method-assign]

    def _timed(self, step: StepTaken, events: Sequence[Event]) -> None:
        started = time.thread_time()
        self._stepped(step, events)
        self.seconds.append(time.thread_time() - started)


def timed_step(engine: Engine, observer: Observer, now: float) -> float:
    engine.loop.observer = observer
    started = time.thread_time()
    engine.loop.step(now)
    return time.thread_time() - started


def step_figures(model_dir: Path, dtype: str, n_pairs: int) -> list[Figure]:
    engine = decoding_engine(model_dir, load_model(model_dir, dtype), 2 * n_pairs)
    watched = Watched(engine)
    pairs, now = [], 0.0
    for pair in range(n_pairs):
        order = (watched.observer, NOT_OBSERVED) if pair % 2 else (NOT_OBSERVED, watched.observer)
        seconds = {}
        for observer in order:
            seconds[observer is NOT_OBSERVED] = timed_step(engine, observer, now)
            now += STEP_S
        pairs.append((seconds[False], seconds[True]))
    n_rows = engine.loop.scheduler.n_running
    engine.close()
    bare_s, alone_s = median(off for _, off in pairs), median(watched.seconds)
    return [
        at_most("watched over bare, a step of 32 rows", median(on / off for on, off in pairs), "x", MOST_SLOWER),
        at_most("watching alone, of a bare step", 100 * alone_s / bare_s, "%", 100 * (MOST_SLOWER - 1)),
        Figure("watching alone", alone_s * 1e6, "us"),
        Figure("a bare step", bare_s * 1e3, "ms"),
        at_least("rows in every step", n_rows, "", ROWS),
    ]


# -- scrapes -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Loaded:
    """A load that ended well."""

    key: AdapterKey
    n_grains: int = GRAINS
    error: EngineError | None = None

    @property
    def image(self) -> Loaded:
        return self


@dataclass(slots=True)
class InstantParts:
    """A runner and a loader that are done at once."""

    loading: list[AdapterKey] = field(default_factory=list)

    def execute(self, plan: StepPlan) -> StepResult:
        return StepResult(plan.step_id, {row.request_id: 7 for row in plan.rows if row.samples}, STEP_S)

    def write_extent(self, base_grain: int, image: object) -> float:  # noqa: ARG002
        return 0.0

    def move_extent(self, source_grain: int, target_grain: int, n_grains: int) -> float:  # noqa: ARG002
        return 0.0

    def start(self, key: AdapterKey) -> None:
        self.loading.append(key)

    def poll(self) -> Sequence[Loaded]:
        loaded, self.loading = [Loaded(key) for key in self.loading], []
        return loaded


def deciding_engine() -> EngineLoop:
    cost = ModelCost(
        layer_params=10**8,
        head_params=10**7,
        attention_flops_per_pair=10**5,
        kv_bytes_per_token=1 << 16,
        layer_bytes=2 * 10**8,
        head_bytes=2 * 10**7,
    )
    kv = KvManager(n_blocks=8192, block_size=16, block_bytes=1 << 20)
    residency = AdapterResidency(
        n_grains=256 * GRAINS, grain_bytes=GRAIN_BYTES, host_bytes=2 * ADAPTERS * GRAINS * GRAIN_BYTES, max_loading=64
    )
    limits = SchedulerLimits(
        max_model_len=1024,
        max_num_seqs=SEATS,
        max_num_batched_tokens=2048,
        max_adapters_per_step=SEATS,
        max_queued_requests=4 * SEATS,
        eos_token_ids=frozenset(),
        vocab=500,
    )
    scheduler = Scheduler(limits, kv, residency, cost=cost, profile=load_profile(DEVICES / "cpu2.json"))
    parts = InstantParts()
    observatory = Observatory(tenants=scheduler.tenants, itemsize=2)
    return EngineLoop(
        scheduler=scheduler, kv=kv, residency=residency, loader=parts, runner=parts, cost=cost, observer=observatory
    )


def busy_engine() -> EngineLoop:
    """It has served a request on every adapter, knows them all, and has work of every tenant."""
    loop, now = deciding_engine(), 0.0
    for index in range(ADAPTERS):
        tenant = f"tenant{index % TENANTS:03}"
        key = AdapterKey(tenant, f"{index:064x}"[::-1])
        loop.submit([request(f"r{index}", tenant, 20, 6, key)], now)
        while loop.scheduler.n_waiting + loop.scheduler.n_running > 2 * SEATS:
            loop.step(now)
            now += STEP_S
    for _ in range(4):
        loop.step(now)
        now += STEP_S
    return loop


def scrape_figures(n_scrapes: int) -> list[Figure]:
    loop = busy_engine()
    publishing, scraping, working, size = [], [], [], 0
    published = measure(loop, now=0.0, uptime_s=1.0, unsettled=0)
    health = HealthServer(
        host="127.0.0.1",
        port=0,
        metrics=lambda: render(families(published)),
        is_live=lambda: True,
        is_ready=lambda: True,
    )
    health.start()
    for _ in range(n_scrapes):
        started = time.thread_time()
        published = measure(loop, now=0.0, uptime_s=1.0, unsettled=0)
        publishing.append(time.thread_time() - started)
        started, worked = time.perf_counter(), time.process_time()
        with urllib.request.urlopen(f"http://127.0.0.1:{health.port}/metrics", timeout=10) as answer:
            size = len(answer.read())
        scraping.append(time.perf_counter() - started)
        working.append(time.process_time() - worked)
    health.stop()
    known = sum(loop.residency.by_state().values())
    return [
        at_least("adapters known", known, "", ADAPTERS),
        at_most("/metrics over HTTP", quantiles(scraping, n=10)[0] * 1e3, "ms", MOST_SCRAPE_MS),
        at_most("its processor time", median(working) * 1e3, "ms", MOST_SCRAPE_MS),
        Figure("its size", size / 1e3, "kB"),
        at_most("publishing, once a second", median(publishing) * 1e3, "ms", MOST_PUBLISH_MS),
    ]


def main() -> None:
    parser = arguments("What the engine's instruments cost.")
    parser.add_argument("model_dir", type=Path)
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    figures = scrape_figures(10 if options.quick else 60)
    figures += step_figures(options.model_dir, options.dtype, 60 if options.quick else 300)
    present("Instruments", figures, options.json)


if __name__ == "__main__":
    main()
