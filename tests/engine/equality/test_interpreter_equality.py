"""The engine on the GPU's kernels, interpreted, on a device that works late: every answer is transformers' and PEFT's.

A small random model and few steps, since the interpreter takes a second a step. What is not a kernel is what a GPU
gets: pinned words, lanes and fences, steps that are left with the device. Only the streams themselves are missing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from lorikeet_adapters.source import image_key
from lorikeet_adapters.store.local import LocalBlobStore
from lorikeet_engine.build import Engine, LoadedModel, build_engine
from lorikeet_engine.config import EngineConfig
from lorikeet_engine.cost import kv_block_bytes
from lorikeet_engine.execution.placement import beside_the_host
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.model_spec import load_model_spec
from lorikeet_engine.models.weights import load_weights
from lorikeet_engine.ops.cuda import CudaOps, PageMover
from lorikeet_engine.ops.interface import Ops
from lorikeet_engine.scheduling.events import RequestFailure, TokenOutput
from lorikeet_engine.scheduling.plan import SamplingParams
from lorikeet_engine.scheduling.request import Request
from tests.support.asynchronous_device import LateLanes
from tests.support.device import random_ids
from tests.support.lora_files import normalise_folder
from tests.support.tiny_models import (
    VOCAB,
    load_adapted_oracle,
    load_oracle,
    oracle_logits,
    save_adapter,
    save_model,
)

pytestmark = pytest.mark.slow

TENANT = "tenant"
BLOCK = 8
FLOAT32_BYTES = 4
N_TOKENS = 4
EOS = 2
LOAD_WAIT_S = 0.002
ADAPTERS: dict[str, dict[str, Any]] = {
    "all": {"r": 8, "target_modules": "all-linear"},
    "few": {"r": 3, "lora_alpha": 7, "target_modules": ["q_proj", "v_proj", "down_proj"]},
}


class Small:
    """A tiny model, two adapters in a store, and an engine on the interpreted kernels."""

    def __init__(self, name: str, folder: Path) -> None:
        directory = save_model(name, folder / "model")
        spec, store = load_model_spec(directory), LocalBlobStore(folder / "store")
        self.oracles, self.keys = {"base": load_oracle(directory)}, dict[str, AdapterKey]()
        for seed, (adapter, options) in enumerate(ADAPTERS.items()):
            saved = save_adapter(directory, folder / adapter, seed=seed, **options)
            normalised = folder / f"{adapter}.normalised"
            _, digest, data = normalise_folder(saved, spec.module_table("small"))
            normalised.write_bytes(data)
            store.put_file(image_key(TENANT, digest), normalised)
            self.oracles[adapter] = load_adapted_oracle(directory, saved)
            self.keys[adapter] = AdapterKey(TENANT, digest)
        ops: Ops = CudaOps(device="cpu", max_tokens=64, max_rank=64)
        weights_ = load_weights(directory, spec, dtype=torch.float32, ops=ops)
        self._model = LoadedModel(spec, ops, weights_, 8 << 30, "digest", "none")
        self._block_bytes = kv_block_bytes(spec, block_size=BLOCK, itemsize=FLOAT32_BYTES)
        self._directory, self._store = directory, folder / "store"

    def open(self, *, n_blocks: int, seed: int = 1, **settings: Any) -> Engine:
        config = EngineConfig(
            model_dir=self._directory,
            model_name="small",
            store_url=str(self._store),
            endpoint="ipc://unused",
            dtype="float32",
            threads=1,
            block_size=BLOCK,
            max_model_len=64,
            kv_cache_bytes=n_blocks * self._block_bytes,
            adapter_pool_bytes=1 << 20,
            ttft_deadline=0.0,
            **{"max_num_seqs": 4, "max_num_batched_tokens": 16} | settings,
        )
        return build_engine(config, self._model, placement=beside_the_host("cpu", LateLanes(seed), PageMover))

    def request(self, name: str, prompt: list[int], adapter: str = "base", n_tokens: int = N_TOKENS) -> Request:
        return Request(
            request_id=name,
            tenant=TENANT,
            prompt=tuple(prompt),
            max_tokens=n_tokens,
            sampling=SamplingParams(),
            adapter=self.keys.get(adapter),
            cache_salt=TENANT.encode(),
        )

    def answer(self, prompt: list[int], adapter: str = "base", n_tokens: int = N_TOKENS) -> list[int]:
        """The oracle's greedy tokens, with everything computed anew for each."""
        tokens = list(prompt)
        while len(tokens) < len(prompt) + n_tokens and tokens[-1] != EOS:
            tokens.append(int(oracle_logits(self.oracles[adapter], tokens)[-1].argmax()))
        return tokens[len(prompt) :]


def answers(engine: Engine, requests: list[Request]) -> dict[str, list[int]]:
    """Submit one a step and step until all is done; every request must succeed."""
    loop, waiting, found = engine.loop, list(requests), dict[str, list[int]]()
    now = 0.0
    while waiting or loop.has_work:
        if waiting:
            loop.submit([waiting.pop(0)], now)
        events = loop.step(now)
        for event in events:
            assert not isinstance(event, RequestFailure), event
            if isinstance(event, TokenOutput):
                found.setdefault(event.request_id, []).append(event.token)
        now += 0.02
        if not loop.is_computing:
            time.sleep(LOAD_WAIT_S)
    return found


@pytest.fixture(scope="module", params=["llama", "qwen2_window_in_upper_layers"])
def small(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Small:
    return Small(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture
def opened() -> Iterator[Callable[[Engine], Engine]]:
    engines: list[Engine] = []

    def keep(engine: Engine) -> Engine:
        engines.append(engine)
        return engine

    yield keep
    for engine in engines:
        engine.close()


def test_adapters_and_the_base_model_in_one_batch_with_chunks_and_a_shared_prefix(
    small: Small, opened: Callable[[Engine], Engine]
) -> None:
    shared = random_ids(2 * BLOCK, vocab=VOCAB, seed=1)
    asked = {
        "long": (random_ids(21, vocab=VOCAB, seed=2), "all"),
        "first": (shared + random_ids(3, vocab=VOCAB, seed=3), "base"),
        "few": (random_ids(5, vocab=VOCAB, seed=4), "few"),
        "second": (shared + random_ids(4, vocab=VOCAB, seed=5), "base"),
    }
    engine = opened(small.open(n_blocks=40))
    found = answers(engine, [small.request(name, *what) for name, what in asked.items()])
    assert found == {name: small.answer(*what) for name, what in asked.items()}


@pytest.mark.parametrize("small", ["llama"], indirect=True)
def test_requests_that_swap_each_other_out(small: Small, opened: Callable[[Engine], Engine]) -> None:
    asked = {f"r{seed}": (random_ids(BLOCK - 2, vocab=VOCAB, seed=seed), "base", 20) for seed in range(4)}
    block_bytes = small._block_bytes
    engine = opened(small.open(n_blocks=9, swap_space=8 * block_bytes, preemption="swap", enable_prefix_caching=False))
    found = answers(engine, [small.request(name, *what) for name, what in asked.items()])
    assert found == {name: small.answer(*what) for name, what in asked.items()}
    assert engine.loop.scheduler.counters.swap_bytes["in"] > 0
