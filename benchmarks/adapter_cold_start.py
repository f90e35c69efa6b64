"""What it takes to bring an adapter in: for its own first request, and for everybody else's steps meanwhile.

    python benchmarks/adapter_cold_start.py MODEL_DIR [--quick] [--json FILE] [--dtype float32]

Adapters of rank 16 on all linears, as PEFT saves them (float32), in a store on this machine's disk. The engine computes
on one thread, so that its loader has the rest of the machine.

First token: a request with a prompt of 32 tokens on an engine with nothing else to do, whose adapter lies on disk (its
file dropped from the page cache before), in host memory, or on the device; medians. Steps: eight requests decode on
the base model; in turn, for a second or two each, nothing loads and adapters load one after another without a pause.
Only pairs of turns count during which other processes took little of the machine; where there are none the figures are
shown, and nothing is concluded. On a machine that others use, the step times without what the thread waited for a core
say more: they leave the loader's share of memory bandwidth and of the interpreter.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

import torch
from figures import Figure, arguments, at_most, present
from peer_race.process import machine_seconds
from safetensors.torch import save_file

from lorikeet_adapters.digest import write_normalised
from lorikeet_adapters.files import CONFIG_FILE, WEIGHTS_FILE
from lorikeet_adapters.modules import ModuleTable
from lorikeet_adapters.source import image_key
from lorikeet_adapters.store.local import LocalBlobStore
from lorikeet_adapters.validate import validate_adapter
from lorikeet_engine.build import Engine, build_engine, load_model
from lorikeet_engine.config import MIB, EngineConfig
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.scheduling.events import TokenOutput
from lorikeet_engine.scheduling.plan import SamplingParams
from lorikeet_engine.scheduling.request import Request

NAME, TENANT, RANK = "bench", "tenant", 16
N_ADAPTERS, N_KEPT = 8, 3  # in the store; in host memory at once, so that each load reads the disk
ROWS, PROMPT, CONTEXT = 8, 32, 2048
LONGEST_ANSWER = CONTEXT - PROMPT
LOADING_WAIT_S = 0.002  # how long the engine's process sleeps while all that it has to do is wait for a load
MOST_FOREIGN = 0.05
MEDIAN_BOUND, P99_BOUND = 1.1, 1.3


@dataclass(frozen=True)
class Sizes:
    """How much of everything a run does."""

    n_first_tokens: int
    n_pairs: int
    n_tries: int
    turn_s: float


FULL, QUICK = Sizes(30, 20, 60, 1.5), Sizes(8, 5, 8, 1.0)


@dataclass(frozen=True)
class Step:
    """Seconds of one step, and those of them that its thread waited for a core."""

    seconds: float
    queued_s: float

    @property
    def net_s(self) -> float:
        return self.seconds - self.queued_s


@dataclass
class Turns:
    """Steps with and without loads."""

    quiet: list[Step] = field(default_factory=list)
    loading: list[Step] = field(default_factory=list)
    n_loads: int = 0
    n_pairs: int = 0

    def add(self, other: Turns) -> None:
        self.quiet += other.quiet
        self.loading += other.loading
        self.n_loads += other.n_loads
        self.n_pairs += 1


class Bench:
    """An engine with a store of adapters, stepped as the engine's process steps it."""

    def __init__(self, engine: Engine, keys: Sequence[AdapterKey], root: Path) -> None:
        self.loop = engine.loop
        self.keys = list(keys)
        self._files = [root / image_key(key.tenant, key.digest) for key in keys]
        self._serial = 0
        self._decoding: list[str] = []

    def submit(self, adapter: AdapterKey | None, *, max_tokens: int) -> str:
        """A request with a prompt of its own."""
        self._serial += 1
        prompt = [1000 + (self._serial * 7919 + i * 104729) % 20000 for i in range(PROMPT)]
        request = Request(
            request_id=f"r{self._serial}",
            tenant=TENANT,
            prompt=tuple(prompt),
            max_tokens=max_tokens,
            sampling=SamplingParams(),
            adapter=adapter,
        )
        self.loop.submit([request], time.monotonic())
        return request.request_id

    def first_token_s(self, adapter: AdapterKey) -> float:
        """Seconds until a request's only token is there."""
        started = time.perf_counter()
        name = self.submit(adapter, max_tokens=1)
        while not any(isinstance(e, TokenOutput) and e.request_id == name for e in self.loop.step(time.monotonic())):
            if not self.loop.is_computing:
                time.sleep(LOADING_WAIT_S)
        return time.perf_counter() - started

    def forget(self, adapter: AdapterKey) -> None:
        """Leave it on disk only."""
        self.loop.retire(adapter)
        self.settle()
        with self._files[self.keys.index(adapter)].open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def warm(self, adapter: AdapterKey) -> None:
        self.loop.warm(adapter, time.monotonic())
        while self.loop.warming:
            self.loop.step(time.monotonic())
            time.sleep(LOADING_WAIT_S)
        for _, error, _ in self.loop.take_warmed():
            if error is not None:
                raise error

    def settle(self) -> None:
        while self.loop.has_work:
            self.loop.step(time.monotonic())
        self.loop.step(time.monotonic())

    def decode(self, n_rows: int) -> None:
        """Start requests that decode for longer than a turn, in place of those of the last one."""
        for name in self._decoding:
            self.loop.abort(name)
        self._decoding = [self.submit(None, max_tokens=LONGEST_ANSWER) for _ in range(n_rows)]
        for _ in range(n_rows + 2):
            self.loop.step(time.monotonic())

    def turn(self, seconds: float, *, loads: bool) -> tuple[list[Step], int]:
        """Steps for so long, and how many adapters came in meanwhile: two on their way at any time, or none."""
        steps: list[Step] = []
        n_loads, following = 0, 0
        end = time.perf_counter() + seconds
        while (started := time.perf_counter()) < end:
            queued_s = _queued_s()
            while loads and len(self.loop.warming) < 2:
                self.loop.warm(self.keys[following % len(self.keys)], time.monotonic())
                following += 1
            self.loop.step(time.monotonic())
            steps.append(Step(time.perf_counter() - started, _queued_s() - queued_s))
            n_loads += len(self.loop.take_warmed())
        while self.loop.warming:
            self.loop.step(time.monotonic())
        self.loop.take_warmed()
        return steps, n_loads

    def pair(self, seconds: float) -> tuple[Turns, float]:
        """A turn of each kind, and the share of the machine that others took."""
        clock, machine, own = time.perf_counter(), machine_seconds(), time.process_time()
        # Each turn begins anew: a step takes longer as its contexts grow.
        self.decode(ROWS)
        quiet, _ = self.turn(seconds, loads=False)
        self.decode(ROWS)
        loading, n_loads = self.turn(seconds, loads=True)
        cores = len(os.sched_getaffinity(0))
        foreign = machine_seconds() - machine - (time.process_time() - own)
        return Turns(quiet, loading, n_loads), foreign / (cores * (time.perf_counter() - clock))


def write_adapters(store: LocalBlobStore, table: ModuleTable, folder: Path) -> list[AdapterKey]:
    keys = []
    for seed in range(N_ADAPTERS):
        torch.manual_seed(seed)
        tensors, prefix = {}, "base_model.model.model.layers"
        for layer in range(table.n_layers):
            for module, linear in table.linears.items():
                name = f"{prefix}.{layer}.{module}"
                tensors[f"{name}.lora_A.weight"] = 0.02 * torch.randn(RANK, linear.in_features)
                tensors[f"{name}.lora_B.weight"] = 0.02 * torch.randn(linear.out_features, RANK)
        config, weights, image = folder / CONFIG_FILE, folder / WEIGHTS_FILE, folder / "image"
        modules = sorted(module.rpartition(".")[2] for module in table.linears)
        config.write_text(
            json.dumps(
                {"peft_type": "LORA", "r": RANK, "lora_alpha": 2 * RANK, "bias": "none", "target_modules": modules}
            )
        )
        save_file(tensors, weights)
        adapter = validate_adapter(config=config, weights=[weights], index=None, table=table, max_rank=RANK)
        with image.open("wb") as out:
            digest = write_normalised(adapter, [weights], out)
        keys.append(AdapterKey(TENANT, digest))
        store.put_file(image_key(TENANT, digest), image)
        for path in (config, weights, image):
            path.unlink(missing_ok=True)
    return keys


def build(model_dir: Path, dtype: str, root: Path) -> tuple[Engine, list[AdapterKey]]:
    """An engine that does not end answers by itself, over a store with adapters."""
    model = load_model(model_dir, dtype)
    model = replace(model, spec=replace(model.spec, eos_token_ids=()))
    table = model.spec.module_table(NAME)
    keys = write_adapters(LocalBlobStore(root), table, root.parent)
    image_bytes = sum(2 * RANK * (lin.in_features + lin.out_features) for lin in table.linears.values())
    image_bytes *= table.n_layers * model.weights.dtype.itemsize // 2
    config = EngineConfig(
        model_dir=model_dir,
        model_name=NAME,
        store_url=str(root),
        endpoint="ipc://bench",
        dtype=dtype,
        threads=1,
        max_model_len=CONTEXT,
        max_num_seqs=ROWS,
        kv_cache_bytes=512 * MIB,
        adapter_pool_bytes=int(2.5 * image_bytes),
        host_adapter_cache_bytes=int((N_KEPT + 0.5) * image_bytes),
    )
    return build_engine(config, model), keys


def first_tokens(bench: Bench, n: int) -> list[Figure]:
    """By where the adapter lies; all of one kind in turn with the others, so that noise meets them alike."""
    times: dict[str, list[float]] = {"on disk": [], "in host memory": [], "on the device": []}
    for round_ in range(n):
        adapter = bench.keys[round_ % len(bench.keys)]
        bench.forget(adapter)
        times["on disk"].append(bench.first_token_s(adapter))
        times["on the device"].append(bench.first_token_s(adapter))
        bench.forget(adapter)
        bench.warm(adapter)
        times["in host memory"].append(bench.first_token_s(adapter))
    return [Figure(f"first token, adapter {place}", 1e3 * median(seconds), "ms") for place, seconds in times.items()]


def step_times(bench: Bench, sizes: Sizes) -> list[Figure]:
    quiet, noisy = Turns(), Turns()
    tries = 0
    while quiet.n_pairs < sizes.n_pairs and tries < sizes.n_tries:
        tries += 1
        turns, foreign = bench.pair(sizes.turn_s)
        (quiet if foreign <= MOST_FOREIGN else noisy).add(turns)
    counted = quiet if quiet.n_pairs else noisy
    figures = [
        Figure("pairs of turns that counted", quiet.n_pairs, f"of {tries}"),
        Figure("loads a second", counted.n_loads / (counted.n_pairs * sizes.turn_s), "1/s"),
    ]
    for name, share, bound in (("median", 0.5, MEDIAN_BOUND), ("p99", 0.99, P99_BOUND)):
        without, during = (_quantile([s.seconds for s in steps], share) for steps in (counted.quiet, counted.loading))
        figures.append(Figure(f"step, {name}", 1e3 * without, "ms"))
        figures.append(Figure(f"step while adapters load, {name}", 1e3 * during, "ms"))
        ratio = f"step while adapters load over without, {name}"
        figures.append(
            at_most(ratio, during / without, "", bound) if quiet.n_pairs else Figure(ratio, during / without, "")
        )
        without, during = (_quantile([s.net_s for s in steps], share) for steps in (counted.quiet, counted.loading))
        figures.append(Figure(f"{ratio}, without waiting for a core", during / without, ""))
    return figures


def _queued_s() -> float:
    """Seconds that this thread has waited for a core so far, as Linux counts them."""
    path = Path("/proc/self/task") / str(threading.get_native_id()) / "schedstat"
    return int(path.read_text().split()[1]) / 1e9


def _quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("model_dir", type=Path)
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    options = parser.parse_args()
    sizes = QUICK if options.quick else FULL
    with tempfile.TemporaryDirectory(prefix="lorikeet-bench-", dir=Path.cwd()) as folder:
        root = Path(folder) / "store"
        engine, keys = build(options.model_dir, options.dtype, root)
        with closing(engine):
            bench = Bench(engine, keys, root)
            bench.first_token_s(keys[0])
            figures = first_tokens(bench, sizes.n_first_tokens) + step_times(bench, sizes)
    present(f"Adapters of rank {RANK} coming in, {options.dtype}", figures, options.json)


if __name__ == "__main__":
    main()
