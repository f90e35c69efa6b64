"""Whether plans that were calibrated on some workloads hold on others: predicted and then measured, on one engine.

    python benchmarks/plan_backtest.py MODEL_DIR [--quick] [--json FILE]

An engine of its own process serves closed loops of random prompts, EOS ignored, the KV pool too small for the largest.
Its steps of the first workloads calibrate the planner, as `lorikeet plan --live` does it; others are predicted, before
anything of them has run, and then served. The planner was made with three of them before its eyes; C=3 and C=8 were
added when it was done. After they had been seen its fit was not changed, but what is learned from was added to, and
what counts as seen was made wider. Measured are means, by the engine's own histograms, and the most requests that ran
at once. A question that leaves what was seen must be refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from adapter_cold_start import NAME, RANK, TENANT, write_adapters
from figures import Figure, arguments, near, present

from lorikeet_adapters.modules import MODULES
from lorikeet_adapters.store.local import LocalBlobStore
from lorikeet_engine.client import EngineClient, GenerationRequest, SamplingParams
from lorikeet_engine.config import MIB
from lorikeet_engine.cost import kv_block_bytes
from lorikeet_engine.model_spec import load_model_spec
from lorikeet_engine.stats import EngineDesign, StepSample
from lorikeet_platform.engine_watch.window import Window
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.planning.learning.calibration import Calibrated, calibrate
from lorikeet_platform.planning.planner import predicted
from lorikeet_platform.planning.prediction import Load, Prediction
from lorikeet_platform.planning.subject import Subject, running_subject

BLOCK, POOL_BLOCKS, SEATS, CONTEXT = 32, 176, 16, 1024
ITEMSIZE = 2
ITL_BOUND, TTFT_BOUND = 0.15, 0.25
READY_WITHIN_S, ANSWER_WITHIN_S = 120.0, 600.0
VOCABULARY = range(1_000, 40_000)
TARGETS = tuple(module.rpartition(".")[2] for module in MODULES)


@dataclass(frozen=True)
class Sizes:
    output: int  # where a case does not say
    rounds: int  # requests of each client
    rounds_learned: int  # of those learned from: enough steps of every size that is asked about


FULL, QUICK = Sizes(64, 2, 3), Sizes(24, 1, 3)

FILLING = 0  # a prompt such that all clients' answers end where the pool does
# Clients, prompt, adapters, and the output where it is another one: learned from, and predicted. Only the last one
# wants more than the pool holds, since an engine that has just preempted lets fewer run for a while.
Case = tuple[int, int, int] | tuple[int, int, int, int]
FITTED: tuple[Case, ...] = (
    *((1, 640, 0), (2, 64, 0), (16, 64, 0), (16, FILLING, 0), (8, FILLING, 0), (3, 192, 0)),
    *((5, 320, 8), (10, 64, 8), (1, 512, 0, 8), (3, 512, 0, 8), (2, 32, 0, 16), (1, 32, 0, 8)),
    *(6 * ((1, 640, 0, 8),)),
    *(3 * ((4, 32, 0, 16),)),  # a step with a prompt is rare: enough of the largest and smallest
)
UNTUNED: tuple[Case, ...] = ((3, 384, 0, 96), (8, 192, 2))
PREDICTED: tuple[Case, ...] = ((4, 256, 0), (6, 128, 4), *UNTUNED, (12, 512, 0))
BEYOND = (4, 900, 0)


def load_of(case: Case, sizes: Sizes) -> Load:
    clients, prompt, n_adapters = case[:3]
    output = case[3] if len(case) > 3 else sizes.output
    return Load(
        prompt_tokens=prompt or POOL_BLOCKS * BLOCK // clients - output,
        output_tokens=output,
        concurrency=clients,
        n_adapters=n_adapters,
        rank=RANK,
        targets=TARGETS,
        requests_per_client=sizes.rounds,
    )


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("model_dir", type=Path, help="base model directory")
    options = parser.parse_args()
    sizes = QUICK if options.quick else FULL
    figures = asyncio.run(backtest(options.model_dir, sizes))
    present("Plans, predicted and measured", figures, options.json)


async def backtest(model_dir: Path, sizes: Sizes) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        async with engine(model_dir, Path(folder)) as bench:
            await bench.serve(load_of((2, 64, 2), sizes))  # what happens once only is in no figure
            began = time.monotonic()
            learned: list[StepSample] = []
            for case in FITTED:
                load = replace(load_of(case, sizes), requests_per_client=sizes.rounds_learned)
                learned += (await bench.serve(load)).steps
            calibrated = calibrate(learned)
            figures = [
                Figure("learned from", calibrated.n_steps, "steps"),
                Figure("step off by, kept out of the fit, p50", 100 * calibrated.error_p50, "%"),
                Figure("step off by, kept out of the fit, p90", 100 * calibrated.error_p90, "%"),
            ]
            predictions = [prediction_of(bench.subject, load_of(case, sizes), calibrated) for case in PREDICTED]
            for case, prediction in zip(PREDICTED, predictions, strict=True):
                figures += compared(case, prediction, await bench.serve(load_of(case, sizes)))
            beyond = prediction_of(bench.subject, load_of(BEYOND, sizes), calibrated) is None
            figures.append(Figure("C={}, L={}: refused".format(*BEYOND), float(beyond), "", "1", beyond))
            figures.append(Figure("took", time.monotonic() - began, "s"))
            return figures


def compared(case: Case, prediction: Prediction | None, window: Window) -> list[Figure]:
    name = "C={}, L={}".format(*case) + (f", {case[2]} adapters" if case[2] else "")
    if prediction is None:
        return [Figure(f"{name}: predicted", 0.0, "", "1", holds=False)]
    itl_s, ttft_s = window.spread("itl").mean_s, window.spread("ttft").mean_s
    running = max(step.running for step in window.steps)
    return [
        near(f"{name}: most at once", prediction.peak_running, "requests", running, 0.0),
        near(f"{name}: ITL", 1e3 * prediction.itl_s, "ms", 1e3 * itl_s, ITL_BOUND),
        near(f"{name}: TTFT", 1e3 * prediction.ttft_s, "ms", 1e3 * ttft_s, TTFT_BOUND),
    ]


def prediction_of(subject: Subject, load: Load, calibrated: Calibrated) -> Prediction | None:
    """None = the question was refused, since it leaves what was seen."""
    try:
        return predicted(subject, load, calibrated)
    except PlatformError as error:
        print(error)  # noqa: T201
        return None


class Bench:
    """A client of an engine, and closed loops through it."""

    def __init__(self, client: EngineClient, design: EngineDesign, digests: Sequence[str]) -> None:
        self.subject = running_subject(NAME, design, {}, 1)
        self._client, self._digests = client, digests
        self._numbers = random.Random(7)
        self._serial = 0

    async def serve(self, load: Load) -> Window:
        """All clients start at once, and each asks again when it is answered; what the engine says of that."""
        before, since = await self._client.stats(), (await self._client.steps()).now_s
        began = time.monotonic()
        async with asyncio.timeout(ANSWER_WITHIN_S):
            await asyncio.gather(*(self._ask(load) for _ in range(load.concurrency)))
        seconds = time.monotonic() - began
        steps = (await self._client.steps(since)).samples
        window = Window(before, await self._client.stats(), seconds, steps)
        print(  # noqa: T201
            f"C={load.concurrency} L={load.prompt_tokens} adapters={load.n_adapters}: {seconds:.1f} s, "
            f"ITL {1e3 * window.spread('itl').mean_s:.1f} ms, TTFT {1e3 * window.spread('ttft').mean_s:.0f} ms",
            flush=True,
        )
        return window

    async def _ask(self, load: Load) -> None:
        for _ in range(load.requests_per_client):
            self._serial += 1
            adapter = self._numbers.choice(self._digests[: load.n_adapters]) if load.n_adapters else None
            generation = await self._client.generate(
                GenerationRequest(
                    request_id=f"r{self._serial}",
                    tenant=TENANT,
                    prompt=tuple(self._numbers.choices(VOCABULARY, k=load.prompt_tokens)),
                    max_tokens=load.output_tokens,
                    sampling=SamplingParams(),
                    adapter_digest=adapter,
                    ignore_eos=True,
                )
            )
            async for _delta in generation:
                pass
            await generation.close()
            await self._client.settled([generation.request.request_id])


@contextlib.asynccontextmanager
async def engine(model_dir: Path, folder: Path) -> AsyncIterator[Bench]:
    """An engine process with adapters in its store, and a client of it."""
    spec = load_model_spec(model_dir)
    store = folder / "store"
    keys = write_adapters(LocalBlobStore(store), spec.module_table(NAME), folder)
    config = {
        "model_dir": str(model_dir),
        "model_name": NAME,
        "store_url": str(store),
        "endpoint": f"ipc://{folder / 'engine'}",
        "health_port": 0,
        "max_model_len": CONTEXT,
        "max_num_seqs": SEATS,
        "block_size": BLOCK,
        "kv_cache_bytes": (POOL_BLOCKS + 1) * kv_block_bytes(spec, block_size=BLOCK, itemsize=ITEMSIZE),
        "adapter_pool_bytes": 128 * MIB,
        "ttft_deadline": 0,
        "tenant_queue_share": 1.0,
    }
    config_file = folder / "engine.json"
    config_file.write_text(json.dumps(config))
    with (folder / "engine.log").open("w") as log:
        process = subprocess.Popen([sys.executable, "-m", "lorikeet_engine", "--config", config_file], stderr=log)
    client = EngineClient(endpoint=str(config["endpoint"]), model_dir=model_dir)
    await client.start()
    try:
        await client.wait_ready(READY_WITHIN_S)
        yield Bench(client, await client.design(), [key.digest for key in keys])
    finally:
        await client.stop()
        process.terminate()
        process.wait(timeout=30)


if __name__ == "__main__":
    main()
