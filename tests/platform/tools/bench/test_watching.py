"""A server's own counters beside its load, whoever made it."""

from __future__ import annotations

import asyncio
import socket
from contextlib import closing
from typing import Any

import prometheus_client
import pytest
import uvicorn

from lorikeet_engine.metrics import families, render
from lorikeet_engine.simulation.workload.distributions import Arrivals, Lengths
from lorikeet_platform.tools.bench.engine_design import machine_of
from lorikeet_platform.tools.bench.load.description import Load, LoadGroup
from lorikeet_platform.tools.bench.load.run import run_load
from lorikeet_platform.tools.bench.load.sender import open_session
from lorikeet_platform.tools.bench.load.target import Target
from lorikeet_platform.tools.bench.remarks import remarks
from lorikeet_platform.tools.bench.watching.dialects import WANTED, dialect_of
from lorikeet_platform.tools.bench.watching.exposition import Samples, read_samples
from lorikeet_platform.tools.bench.watching.sampler import MetricsUnreadable, Sampler
from tests.support.engine_figures import A_POOL, engine_stats
from tests.support.openai_server import Behaviour, openai_server

LLAMA = """
# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.
llamacpp:prompt_tokens_total 640
llamacpp:tokens_predicted_total 320
llamacpp:requests_processing 3
llamacpp:requests_deferred 2
llamacpp:n_decode_total 77
"""


def load(n_requests: int = 6) -> Load:
    group = LoadGroup(
        name="bench",
        arrivals=Arrivals(kind="closed", concurrency=2),
        prompt=Lengths(value=8),
        output=Lengths(value=5),
    )
    return Load(name="test", n_requests=n_requests, tenants=(group,))


def reading_of(text: str) -> Any:
    samples = read_samples(text, WANTED)
    dialect = dialect_of(samples)
    assert dialect is not None
    return dialect.make, dialect.read(samples, 1.5)


def test_our_engines_metrics_are_its_figures() -> None:
    stats = engine_stats()
    make, reading = reading_of(render(families(stats)).decode())
    assert make == "lorikeet"
    assert (reading.running, reading.waiting) == (stats.running, stats.waiting)
    assert reading.prompt_tokens == stats.prompt_tokens_total
    assert reading.output_tokens == stats.generated_tokens_total
    assert reading.kv_used == pytest.approx(A_POOL.used / A_POOL.capacity)
    assert reading.kv_reserved == pytest.approx(A_POOL.reserved / A_POOL.capacity)
    assert reading.kv_cached == pytest.approx(A_POOL.cached / A_POOL.capacity)
    assert reading.kv_peak == pytest.approx(stats.kv_peak_bytes / A_POOL.capacity)
    assert reading.preemptions == sum(stats.preemptions.by_mode.values())
    sums = {name: [h for h in stats.histograms if (h.measure, h.by) == (name, "kind")] for name in ("queue", "prefill")}
    assert reading.queue_seconds == pytest.approx(sum(histogram.sum_s for histogram in sums["queue"]))
    assert reading.prefill_seconds == pytest.approx(sum(histogram.sum_s for histogram in sums["prefill"]))
    assert reading.first_tokens == sum(sum(histogram.counts) for histogram in sums["prefill"])
    assert reading.steps == stats.steps_by_kind
    assert reading.step_seconds == pytest.approx(stats.step_seconds_by_kind)
    assert reading.flops == pytest.approx({kind: work.flops for kind, work in stats.work_by_kind.items()})
    assert reading.read_bytes == pytest.approx({kind: work.read_bytes for kind, work in stats.work_by_kind.items()})


def test_what_a_foreign_server_does_not_tell_is_left_out() -> None:
    make, reading = reading_of(LLAMA)
    assert make == "llama.cpp"
    assert (reading.running, reading.waiting, reading.prompt_tokens, reading.output_tokens) == (3, 2, 640, 320)
    assert (reading.kv_used, reading.kv_peak, reading.preemptions, reading.steps) == (None, None, None, {})


def test_samples_are_read_with_their_labels_and_nothing_else_is() -> None:
    text = 'a{x="1",y="q\\"}"} 2 1700000000\na{x="2"} 3.5e1\nab{x="1"} 9\na nonsense\nb NaN\n# a 4\n'
    samples = read_samples(text, frozenset({"a", "c"}))
    assert samples.total("a") == 37
    assert samples.total("a", x="2") == 35
    assert samples.by_label("a", "x") == {"1": 2, "2": 35}
    assert "b" not in samples


def test_counters_are_read_before_every_second_and_after_and_agree_with_the_answers() -> None:
    with openai_server(behaviours=[Behaviour(pace_s=0.1)]) as server:
        target = Target(url=server.url, model="tiny", metrics_url=f"{server.url}/metrics", n_warmups=1)
        run = run_load(target, load())
        counted = server.output_tokens
    readings = run.point.readings
    assert run.make == "vllm"
    assert len(readings) >= 3
    assert readings[0].at_s == 0.0
    assert readings[-1].at_s >= run.point.seconds
    assert readings[0].output_tokens == 5  # the warm-up's
    assert readings[-1].output_tokens - readings[0].output_tokens == counted - 5 == 30
    assert max(reading.running for reading in readings) == 2
    assert readings[-1].kv_peak == pytest.approx(0.2)
    assert any("agree: 30 output tokens" in remark for remark in remarks(run.point))


VLLM = "vllm:generation_tokens_total {n}\nvllm:prompt_tokens_total {n}\n"


@pytest.mark.parametrize("last", ["", VLLM.format(n="NaN"), "vllm:prompt_tokens_total 9\n"])
def test_a_last_reading_that_fails_costs_the_end_of_the_readings_and_not_the_test(last: str) -> None:
    told = [VLLM.format(n=1), VLLM.format(n=5), last]
    with openai_server(behaviours=[Behaviour(pace_s=0.15)], metrics_told=told) as server:
        target = Target(url=server.url, model="tiny", metrics_url=f"{server.url}/metrics", n_warmups=0)
        run = run_load(target, load())
    assert [request.outcome for request in run.point.requests] == ["ok"] * 6
    assert [reading.output_tokens for reading in run.point.readings] == [1, 5]
    assert run.n_missed >= 1
    assert any("could not be read at the end" in remark for remark in remarks(run.point))
    assert not any("others asked it as well" in remark for remark in remarks(run.point))


def test_a_single_reading_is_none() -> None:
    with openai_server(metrics_told=[VLLM.format(n=1), ""]) as server:
        target = Target(url=server.url, model="tiny", metrics_url=f"{server.url}/metrics", n_warmups=0)
        run = run_load(target, load())
    assert (len(run.point.requests), run.point.readings, run.n_missed) == (6, [], 1)


def test_metrics_of_prometheus_clients_own_server_are_read() -> None:
    """vLLM's are made by it, and it compresses for whoever says that he can unpack."""
    registry = prometheus_client.CollectorRegistry()
    prometheus_client.Counter("vllm:generation_tokens", "tokens", registry=registry).inc(5)

    async def read() -> str:
        with closing(socket.socket()) as listening:
            listening.bind(("127.0.0.1", 0))
            application = prometheus_client.make_asgi_app(registry=registry)
            server = uvicorn.Server(uvicorn.Config(application, lifespan="off", log_level="error"))
            serving = asyncio.create_task(server.serve([listening]))
            while not server.started:
                await asyncio.sleep(0.01)
            async with open_session() as session:
                port = listening.getsockname()[1]
                sampler = Sampler(f"http://127.0.0.1:{port}/metrics", lambda: 0.0, session)
                await sampler.begin()
            server.should_exit = True
            await serving
        return sampler.make

    assert asyncio.run(read()) == "vllm"


def test_the_kv_use_of_several_vllm_engines_is_their_mean_and_their_requests_add_up() -> None:
    text = VLLM.format(n=9) + "".join(
        f'vllm:kv_cache_usage_perc{{engine="{i}"}} {used}\nvllm:num_requests_running{{engine="{i}"}} 2\n'
        for i, used in enumerate((0.9, 0.7))
    )
    make, reading = reading_of(text)
    assert make == "vllm"
    assert (reading.kv_used, reading.kv_peak, reading.running) == (pytest.approx(0.8), pytest.approx(0.8), 4)


def test_metrics_that_cannot_be_read_end_the_test_before_it_begins() -> None:
    with openai_server() as server:
        for url, said in ((f"{server.url}/nowhere", "404"), (f"{server.url}/v1/models", "no counters")):
            with pytest.raises(MetricsUnreadable, match=said):
                run_load(Target(url=server.url, model="tiny", metrics_url=url, n_warmups=0), load())
    assert server.asked == []


def test_the_admin_api_tells_the_machine() -> None:
    engine = {
        "device": "cpu",
        "design": {"n_blocks": 10, "block_size": 16, "block_bytes": 1600, "memory": [{"name": "weights", "bytes": 7}]},
        "performance": {"peak_flops": 2.0, "peak_bandwidth": 3.0},
    }
    machine = machine_of("smol", engine)
    assert (machine.pool_tokens, machine.kv_bytes_per_token, machine.weights_bytes) == (160, 100, 7)
    assert (machine.peak_flops, machine.peak_bandwidth) == (2.0, 3.0)
    assert machine_of("smol", {"device": "cpu", "design": None, "performance": None}).pool_tokens is None


def test_figures_that_are_taken_now_and_then_keep_their_own_time_and_none_is_kept_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that is asked more often than it takes figures, by its own clock."""
    taken = iter([9.5, 9.5, 10.0, *(10.0, 11.0, 11.0), *(11.0, 11.0, 12.5)])

    async def fetch(_sampler: Sampler) -> Samples:
        return read_samples(render(families(engine_stats(uptime_s=next(taken)))).decode(), WANTED)

    monkeypatch.setattr(Sampler, "_fetch", fetch)

    async def watched() -> list[float]:
        async with open_session() as session:
            sampler = Sampler("", iter([0.99, 1.99, 2.99, -1000.0]).__next__, session)
            await sampler.begin()  # not satisfied with what is older than the question
            watching = asyncio.create_task(sampler.watch())
            await asyncio.sleep(0.5)
            watching.cancel()
            await sampler.end()  # nor here
        return [reading.at_s for reading in sampler.readings()]

    assert asyncio.run(watched()) == [0.0, 1.0, 2.5]
