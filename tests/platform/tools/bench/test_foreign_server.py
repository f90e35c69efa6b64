"""Load on an OpenAI-compatible server that is not ours: `transformers serve`, with a model of two layers.

The server counts its prompt tokens with its own tokenizer and its output tokens where it samples them; what it says of
a request in a stream is held against what it says of the same request answered whole.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from lorikeet_engine.simulation.workload.distributions import Arrivals, Lengths
from lorikeet_platform.tools.bench.load.description import Load, LoadGroup
from lorikeet_platform.tools.bench.load.run import run_point
from lorikeet_platform.tools.bench.load.target import find_target
from lorikeet_platform.tools.bench.load.traffic import GroupTraffic
from lorikeet_platform.tools.bench.summary import summarise
from tests.support.ascii_tokenizer import save_ascii_tokenizer, save_chat_template
from tests.support.running_lorikeet import clean_environment
from tests.support.tiny_models import save_model

pytestmark = pytest.mark.slow

READY_WITHIN_S = 120.0
N_REQUESTS = 12
COMMAND = "from transformers.cli.transformers import main; main()"


@dataclass(frozen=True)
class ForeignServer:
    url: str
    log: Path

    def n_answered(self, route: str) -> int:
        """Requests as its own web server counts them."""
        return self.log.read_text().count(f'"POST {route} HTTP/1.1" 200')


@contextmanager
def transformers_serve(model: Path, log: Path) -> Iterator[ForeignServer]:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    arguments = [sys.executable, "-c", COMMAND, "serve", str(model), "--host", "127.0.0.1", "--port", str(port)]
    environment = clean_environment() | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with log.open("wb") as said:
        process = subprocess.Popen(
            [*arguments, "--device", "cpu"], stdout=said, stderr=subprocess.STDOUT, env=environment
        )
        try:
            deadline = time.monotonic() + READY_WITHIN_S
            while not _is_up(url):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.2)
            yield ForeignServer(url, log)
        finally:
            process.terminate()
            process.wait(timeout=30)


def _is_up(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForeignServer]:
    folder = tmp_path_factory.mktemp("foreign")
    model = save_model("llama", folder / "model")
    save_ascii_tokenizer(model)
    save_chat_template(model)
    with transformers_serve(model, folder / "log") as running:
        yield running


@pytest.mark.parametrize("endpoint", ["/v1/completions", "/v1/chat/completions"])
def test_a_foreign_servers_counts_are_those_that_are_reported(server: ForeignServer, endpoint: Any) -> None:
    group = LoadGroup(
        name="bench",
        arrivals=Arrivals(kind="closed", concurrency=3),
        prompt=Lengths(kind="uniform", min=3, max=12),
        output=Lengths(kind="uniform", min=1, max=20),
    )
    load = Load(name="foreign", n_requests=N_REQUESTS, tenants=(group,))
    target = find_target(server.url, api_key="", model="", endpoint=endpoint, prompts=None)
    assert target.prompts == "words"
    n_before = server.n_answered(endpoint)
    point = run_point(target, load)
    assert server.n_answered(endpoint) - n_before == len(point.requests) + target.n_warmups == N_REQUESTS + 1

    assert all(request.outcome == "ok" for request in point.requests)
    assert point.generator is not None
    assert point.generator.n_without_usage == 0
    reported = sorted((request.n_prompt, request.n_output) for request in point.requests)
    assert reported == sorted(_counts_of_whole_answers(target.url + endpoint, GroupTraffic(load, target)))
    summary = summarise(point)
    assert summary.output_tokens == sum(n_output for _, n_output in reported)


def _counts_of_whole_answers(url: str, traffic: GroupTraffic) -> list[tuple[int, int]]:
    """The same requests, greedy as well, in one piece each."""
    counts = []
    for _ in range(N_REQUESTS):
        ask = traffic.take()
        traffic.on_ended(ask, 0.0)
        body = msgspec.json.decode(ask.body) | {"stream": False}
        del body["stream_options"]
        answer = httpx.post(url, json=body, timeout=60, trust_env=False)
        assert answer.status_code == 200, answer.text
        usage = answer.json()["usage"]
        counts.append((usage["prompt_tokens"], usage["completion_tokens"]))
    return counts
