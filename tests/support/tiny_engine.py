"""A whole engine over a tiny model with adapters in its store, on any ops, and the oracles of what it should answer."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from lorikeet_adapters.source import image_key
from lorikeet_adapters.store.local import LocalBlobStore
from lorikeet_engine.build import Engine, LoadedModel, build_engine
from lorikeet_engine.config import EngineConfig
from lorikeet_engine.cost import kv_block_bytes
from lorikeet_engine.errors import EngineError
from lorikeet_engine.execution.placement import Placement
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.model_spec import load_model_spec
from lorikeet_engine.models.weights import load_weights
from lorikeet_engine.ops.interface import Ops
from lorikeet_engine.scheduling.events import RequestFailure, TokenOutput
from lorikeet_engine.scheduling.plan import SamplingParams
from lorikeet_engine.scheduling.request import Request
from tests.support.lora_files import normalise_folder
from tests.support.tiny_models import load_adapted_oracle, load_oracle, oracle_logits

TENANT = "tenant"
BASE = "base"
BLOCK = 8
FLOAT32_BYTES = 4
N_TOKENS = 4
EOS = 2
STEP_S = 0.02  # the virtual time that a step takes
LOAD_WAIT_S = 0.002
MAX_STEPS = 20_000


@dataclass
class Answer:
    """What one request got."""

    tokens: list[int] = field(default_factory=list)
    error: EngineError | None = None


class TinyBench:
    """A tiny model, its adapters in a store, the oracles, and engines over them.

    `digests`, `files` and `serving_bytes` are of the adapters, by name.
    """

    def __init__(self, model_dir: Path, folder: Path, ops: Ops, adapters: Mapping[str, Path]) -> None:
        self._directory, self._folder = model_dir, folder
        self._store = LocalBlobStore(folder)
        self._adapters = adapters
        self._oracles: dict[str, Any] = {}
        self._answers: dict[tuple[str, tuple[int, ...], int], list[int]] = {}
        spec = load_model_spec(model_dir)
        weights = load_weights(model_dir, spec, dtype=torch.float32, ops=ops)
        self._model = LoadedModel(spec, ops, weights, 8 << 30, "digest", "none")
        self.block_bytes = kv_block_bytes(spec, block_size=BLOCK, itemsize=FLOAT32_BYTES)
        self.digests: dict[str, str] = {}
        self.files: dict[str, bytes] = {}
        self.serving_bytes: dict[str, int] = {}
        for name, source in adapters.items():
            adapter, digest, data = normalise_folder(source, spec.module_table("small"))
            self.files[name], self.serving_bytes[name] = data, adapter.serving_bytes(FLOAT32_BYTES)
            self.keep(name, data)
            assert self.digests[name] == digest

    def keep(self, name: str, data: bytes, *, digest: str | None = None) -> None:
        """Put a file into the store, as a worker does with what was validated; under another digest if asked to."""
        self.digests[name] = digest or hashlib.sha256(data).hexdigest()
        path = self._folder.parent / f"{self._folder.name}.{len(self.digests)}"
        path.write_bytes(data)
        self._store.put_file(image_key(TENANT, self.digests[name]), path)

    def open(self, *, n_blocks: int = 80, placement: Placement | None = None, **settings: Any) -> Engine:
        config = EngineConfig(
            model_dir=self._directory,
            model_name="small",
            store_url=str(self._folder),
            endpoint="ipc://unused",
            dtype="float32",
            threads=1,
            block_size=BLOCK,
            max_model_len=64,
            kv_cache_bytes=n_blocks * self.block_bytes,
            ttft_deadline=0.0,
            **{"adapter_pool_bytes": 1 << 20, "max_num_seqs": 4, "max_num_batched_tokens": 16} | settings,
        )
        return build_engine(config, self._model, placement=placement)

    def request(self, name: str, prompt: Sequence[int], adapter: str = BASE, n_tokens: int = N_TOKENS) -> Request:
        return Request(
            request_id=name,
            tenant=TENANT,
            prompt=tuple(prompt),
            max_tokens=n_tokens,
            sampling=SamplingParams(),
            adapter=None if adapter == BASE else AdapterKey(TENANT, self.digests[adapter]),
            cache_salt=TENANT.encode(),
        )

    def answer(self, prompt: Sequence[int], adapter: str = BASE, n_tokens: int = N_TOKENS) -> list[int]:
        """The oracle's greedy tokens, with everything computed anew for each."""
        key = (adapter, tuple(prompt), n_tokens)
        if key not in self._answers:
            tokens, oracle = list(prompt), self._oracle(adapter)
            while len(tokens) < len(prompt) + n_tokens and tokens[-1] != EOS:
                tokens.append(int(oracle_logits(oracle, tokens)[-1].argmax()))
            self._answers[key] = tokens[len(prompt) :]
        return self._answers[key]

    def _oracle(self, adapter: str) -> Any:
        if adapter not in self._oracles:
            source = self._adapters.get(adapter)
            self._oracles[adapter] = (
                load_oracle(self._directory) if source is None else load_adapted_oracle(self._directory, source)
            )
        return self._oracles[adapter]


def run(engine: Engine, requests: Sequence[Request], *, per_step: int = 1) -> dict[str, Answer]:
    """Submit so many a step and step until all is done."""
    loop, waiting = engine.loop, list(requests)
    answers = {request.request_id: Answer() for request in requests}
    for step in range(MAX_STEPS):
        if not waiting and not loop.has_work:
            return answers
        arriving, waiting = waiting[:per_step], waiting[per_step:]
        for request in arriving:
            try:
                loop.submit([request], step * STEP_S)
            except EngineError as error:
                answers[request.request_id].error = error
        for event in loop.step(step * STEP_S):
            if isinstance(event, RequestFailure):
                answers[event.request_id].error = event.error
            elif isinstance(event, TokenOutput):
                answers[event.request_id].tokens.append(event.token)
        if not loop.is_computing:
            time.sleep(LOAD_WAIT_S)
    raise AssertionError(f"the engine still has work after {MAX_STEPS} steps")


def answers(engine: Engine, requests: Sequence[Request], *, per_step: int = 1) -> dict[str, list[int]]:
    """The tokens of requests that must all succeed."""
    found = run(engine, requests, per_step=per_step)
    assert not any(answer.error for answer in found.values()), found
    return {name: answer.tokens for name, answer in found.items()}
