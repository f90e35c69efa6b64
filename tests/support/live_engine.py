"""A real engine over a random model of two small layers: scheduler, memory, loop, server and socket as they serve.

Its tokens are the characters of ASCII, so prompts can be written as text. It serves in a thread; a test talks to it
through an `EngineClient`, as a gateway does.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from lorikeet_adapters.modules import MODULES
from lorikeet_adapters.source import image_key
from lorikeet_adapters.store.local import LocalBlobStore
from lorikeet_engine.build import Engine, LoadedModel, build_engine
from lorikeet_engine.client import EngineClient, GenerationRequest, SamplingParams
from lorikeet_engine.config import EngineConfig
from lorikeet_engine.cost import kv_block_bytes
from lorikeet_engine.design import describe
from lorikeet_engine.errors import EngineError
from lorikeet_engine.model_spec import load_model_spec
from lorikeet_engine.models.weights import load_weights
from lorikeet_engine.ops.cpu import CpuOps
from lorikeet_engine.protocol import EngineInfo
from lorikeet_engine.server import EngineServer
from tests.support.ascii_tokenizer import VOCAB, save_ascii_tokenizer, save_chat_template
from tests.support.lora_files import HIDDEN, INTERMEDIATE, N_LAYERS, normalise_folder, tensors, write_files

MODEL = "tiny-llama"
TENANT = "anna"
BLOCK = 16
FLOAT32_BYTES = 4
CONTEXT = 8192
DRAIN_S = 0.1


@dataclass
class LiveModel:
    """The model, and adapters in a store: digests and sizes in the arena by name."""

    folder: Path
    loaded: LoadedModel
    digests: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    @property
    def block_bytes(self) -> int:
        return kv_block_bytes(self.loaded.spec, block_size=BLOCK, itemsize=FLOAT32_BYTES)

    def add_adapter(self, name: str, *, rank: int) -> str:
        """An adapter of the tenant on every linear."""
        source, seed = self.folder / f"adapter-{name}", len(self.digests)
        write_files(source, tensors(rank=rank, seed=seed, modules=MODULES), r=rank, target_modules=list(_linears()))
        adapter, digest, data = normalise_folder(source, self.loaded.spec.module_table(MODEL))
        path = self.folder / f"{name}.image"
        path.write_bytes(data)
        LocalBlobStore(self.folder / "store").put_file(image_key(TENANT, digest), path)
        assert hashlib.sha256(data).hexdigest() == digest
        self.digests[name], self.sizes[name] = digest, adapter.serving_bytes(FLOAT32_BYTES)
        return digest


def live_model(folder: Path) -> LiveModel:
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=INTERMEDIATE,
        num_hidden_layers=N_LAYERS,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=CONTEXT,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    AutoModelForCausalLM.from_config(config).float().save_pretrained(folder)
    save_ascii_tokenizer(folder)
    save_chat_template(folder)
    spec, ops = load_model_spec(folder), CpuOps()
    weights = load_weights(folder, spec, dtype=torch.float32, ops=ops)
    return LiveModel(folder, LoadedModel(spec, ops, weights, 8 << 30, "0" * 64, "none"))


@dataclass
class LiveEngine:
    """One engine that serves at `endpoint`."""

    model: LiveModel
    engine: Engine
    server: EngineServer
    endpoint: str
    thread: threading.Thread

    def stop(self) -> None:
        self.server.stop()
        self.thread.join(timeout=10)
        self.engine.close()


@contextmanager
def live_engine(model: LiveModel, *, n_blocks: int = 512, **settings: Any) -> Iterator[LiveEngine]:
    """`settings` are fields of `EngineConfig`."""
    with tempfile.TemporaryDirectory(prefix="lk-") as place:  # short: a socket's path has at most 107 bytes
        config = EngineConfig(
            model_dir=model.folder,
            model_name=MODEL,
            store_url=str(model.folder / "store"),
            endpoint=f"ipc://{place}/engine",
            dtype="float32",
            threads=1,
            **{
                "block_size": BLOCK,
                "max_model_len": 512,
                "kv_cache_bytes": (n_blocks + 1) * model.block_bytes,
                "max_num_seqs": 8,
                "max_num_batched_tokens": 128,
                "adapter_pool_bytes": 1 << 20,
                "ttft_deadline": 0.0,
            }
            | settings,
        )
        engine = build_engine(config, model.loaded)
        server = EngineServer(
            loop=engine.loop,
            info=_info(engine),
            design=describe(
                engine.config,
                engine.budget,
                dtype=engine.dtype,
                itemsize=engine.itemsize,
                model=engine.spec,
                cost=engine.cost,
                device=engine.profile,
            ),
            endpoint=config.endpoint,
            keys=None,
            drain_s=DRAIN_S,
        )
        thread = threading.Thread(target=server.run, name="live-engine")
        thread.start()
        running = LiveEngine(model, engine, server, config.endpoint, thread)
        try:
            yield running
        finally:
            running.stop()


@asynccontextmanager
async def connected(engine: LiveEngine) -> AsyncIterator[EngineClient]:
    client = EngineClient(endpoint=engine.endpoint, model_dir=engine.model.folder)
    await client.start()
    try:
        await client.wait_ready(5)
        yield client
    finally:
        await client.stop()


_numbers = itertools.count()


def ask(
    prompt: str, n_tokens: int, *, adapter: str | None = None, salt: bytes = b"anna", tenant: str = TENANT
) -> GenerationRequest:
    """A request whose answer has exactly so many tokens."""
    return GenerationRequest(
        request_id=f"req_{next(_numbers)}",
        tenant=tenant,
        prompt=tuple(prompt.encode("ascii")),
        max_tokens=n_tokens,
        sampling=SamplingParams(),
        adapter_digest=adapter,
        cache_salt=salt,
        ignore_eos=True,
    )


async def answered(client: EngineClient, request: GenerationRequest) -> EngineError | None:
    """Serve one request to its end; the answer is why it was refused, if it was."""
    try:
        generation = await client.generate(request)
    except EngineError as error:
        return error
    try:
        async for _ in generation:
            pass
    except EngineError as error:
        return error
    finally:
        await generation.close()
    return None


async def answer_all(
    client: EngineClient, requests: Sequence[GenerationRequest], *, at_once: int
) -> list[EngineError | None]:
    """All of them, so many at a time."""
    places = asyncio.Semaphore(at_once)

    async def one(request: GenerationRequest) -> EngineError | None:
        async with places:
            return await answered(client, request)

    return list(await asyncio.gather(*map(one, requests)))


def talk(engine: LiveEngine, scenario: Callable[[EngineClient], Awaitable[None]], *, within_s: float = 30.0) -> None:
    """Run a scenario against the engine; one that does not end fails."""

    async def run() -> None:
        async with asyncio.timeout(within_s), connected(engine) as client:
            await scenario(client)

    asyncio.run(run())


def _info(engine: Engine) -> EngineInfo:
    return EngineInfo(
        model_name=MODEL,
        model_digest=engine.model_digest,
        device=engine.config.device,
        dtype=engine.dtype,
        max_model_len=engine.budget.max_model_len,
        block_size=engine.config.block_size,
        vocab=engine.spec.vocab,
    )


def _linears() -> Iterator[str]:
    return (module.rpartition(".")[2] for module in MODULES)
