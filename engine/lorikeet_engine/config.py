"""Every knob of the engine, once. Where vLLM has a knob of the same name, ours means the same.

Standard library only: the GPU check builds an engine on machines that have neither pydantic nor msgspec.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

MIB = 1 << 20
GIB = 1 << 30

DTYPES = {"cpu": ("auto", "bfloat16", "float32"), "cuda": ("auto", "bfloat16", "float16", "float32")}
# What 0 means, by device; `max_num_seqs` of a GPU and `max_model_len` are decided when the memory is divided.
AUTOMATIC: dict[str, dict[str, int]] = {
    "cpu": {
        "max_num_seqs": 32,
        "max_num_batched_tokens": 512,
        "block_size": 32,
        "adapter_pool_bytes": 256 * MIB,
        "max_adapters_per_step": 8,
    },
    "cuda": {
        "max_num_batched_tokens": 2048,
        "block_size": 16,
        "adapter_pool_bytes": 4 * GIB,
        "max_adapters_per_step": 64,
    },
}
POSITIVE = (
    "max_rank",
    "max_queued_requests",
    "max_queued_tokens",
    "host_adapter_cache_bytes",
)
NOT_NEGATIVE = {
    "max_model_len": "automatic",
    "max_num_seqs": "automatic",
    "max_num_batched_tokens": "automatic",
    "block_size": "automatic",
    "adapter_pool_bytes": "automatic",
    "max_adapters_per_step": "automatic",
    "kv_cache_bytes": "automatic",
    "threads": "automatic",
    "swap_space": "no swapping",
    "ttft_deadline": "no deadline",
}
SHARES = ("tenant_queue_share", "tenant_seat_share", "tenant_kv_share", "tenant_arena_share")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Settings of one engine process; 0 = automatic where `AUTOMATIC` has a value for the device.

    Attributes:
        model_dir: local Hugging Face directory (config.json, safetensors, tokenizer.json).
        model_name: what requests call the base model.
        store_url: the blob store, where the worker leaves normalised adapters as `images/{tenant}/{digest}`: a
            directory or `s3://bucket/prefix`; credentials come from the environment.
        store_endpoint: address of an S3 service other than AWS; `store_region` and `store_allow_http` (an endpoint
            without TLS is meant) as there.
        endpoint: ZeroMQ address of the engine, `ipc://…` or `tcp://…` (tcp needs `socket_key_file`).
        outbox_dir: folder of what requests have used and nobody has put on record yet, so that it survives the engine;
            one engine's alone. None = in memory only.
        device: "cpu", "cuda", or "auto" (cuda where there is one); with "auto" the automatic values stay 0 until
            `on_device` says which it is.
        dtype: "auto" (bf16 where the device computes in it, else fp32), "bfloat16", "float32" or, on cuda, "float16".
        quantization: "none", or "int8": the linears' weights as integers with a scale for each output; on a CPU only.
        max_model_len: longest prompt + output in tokens; 0 = the model's, on a CPU min(the model's, 2048).
        max_num_seqs: requests that run at once; 0 = 32 on a CPU, what the KV pool suggests on a GPU.
        gpu_memory_utilization: the part of the GPU's memory that this process may take in all; 0 = 0.9.
        kv_cache_bytes: size of the KV pool; 0 = a quarter of the memory available at start on a CPU, on a GPU what
            `gpu_memory_utilization` leaves beside everything else.
        block_size: tokens in one KV block, a power of two.
        swap_space: host memory for the KV blocks of preempted requests; 0 = they are always recomputed.
        preemption: "auto" (whichever costs less), "swap" or "recompute".
        adapter_pool_bytes: size of the adapter arena.
        host_adapter_cache_bytes: packed adapters kept in host memory, so that a reload reads no disk.
        max_queued_tokens: prompt tokens that may wait.
        ttft_deadline: seconds within which a request must get its first token, or it is refused or dropped; 0 = none.
        tenant_queue_share: the part of the queue that one tenant may fill; likewise of the seats (`max_num_seqs`),
            the KV pool and the arena.
    """

    model_dir: Path
    model_name: str
    store_url: str
    store_endpoint: str = ""
    store_region: str = ""
    store_allow_http: bool = False
    endpoint: str
    socket_key_file: Path | None = None
    outbox_dir: Path | None = None
    health_host: str = "127.0.0.1"
    health_port: int = 8100
    device: str = "cpu"
    dtype: str = "auto"
    quantization: Literal["none", "int8"] = "none"
    threads: int = 0
    max_model_len: int = 0
    max_num_seqs: int = 0
    max_num_batched_tokens: int = 0
    gpu_memory_utilization: float = 0.0
    kv_cache_bytes: int = 0
    block_size: int = 0
    adapter_pool_bytes: int = 0
    max_adapters_per_step: int = 0
    max_rank: int = 64
    max_queued_requests: int = 256
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    swap_space: int = 0
    preemption: Literal["auto", "swap", "recompute"] = "auto"
    host_adapter_cache_bytes: int = 256 * MIB
    max_queued_tokens: int = 262144
    ttft_deadline: float = 10.0
    tenant_queue_share: float = 0.5
    tenant_seat_share: float = 1.0
    tenant_kv_share: float = 1.0
    tenant_arena_share: float = 1.0

    def __post_init__(self) -> None:
        if self.device not in (*AUTOMATIC, "auto"):
            raise ValueError(f"device: {self.device!r}; allowed: 'auto', 'cpu', 'cuda'")
        for name, value in AUTOMATIC.get(self.device, {}).items():
            if getattr(self, name) == 0:
                object.__setattr__(self, name, value)
        self._check_device()
        if self.block_size & (self.block_size - 1):
            raise ValueError(f"block_size: {self.block_size} is not a power of two")
        if self.preemption not in ("auto", "swap", "recompute"):
            raise ValueError(f"preemption: {self.preemption!r}; allowed: 'auto', 'swap', 'recompute'")
        if self.preemption == "swap" and not self.swap_space:
            raise ValueError("preemption: 'swap' needs swap_space")
        for name in POSITIVE:
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} is not positive")
        for name in NOT_NEGATIVE:
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name}: {getattr(self, name)} must be 0 ({NOT_NEGATIVE[name]}) or a number above it")
        for name in SHARES:
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name}: {getattr(self, name)} is not a share; it must be above 0 and at most 1")
        self._check_step()

    def _check_device(self) -> None:
        allowed = DTYPES.get(self.device, DTYPES["cuda"])
        if self.dtype not in allowed:
            raise ValueError(f"dtype: {self.dtype!r}; allowed on {self.device}: {', '.join(map(repr, allowed))}")
        if self.quantization not in ("none", "int8"):
            raise ValueError(f"quantization: {self.quantization!r}; allowed: 'none', 'int8'")
        if self.quantization == "int8" and self.device == "cuda":
            raise ValueError("quantization: 'int8' is computed on device 'cpu' only, not on 'cuda'")
        if not 0 <= self.gpu_memory_utilization <= 1:
            raise ValueError(f"gpu_memory_utilization: {self.gpu_memory_utilization} is not a share from 0 to 1")
        if self.device == "cpu" and self.gpu_memory_utilization:
            raise ValueError("gpu_memory_utilization: device 'cpu' has no GPU memory; set kv_cache_bytes")

    def _check_step(self) -> None:
        needed = max(1, self.max_num_seqs) + self.block_size
        if self.max_num_batched_tokens and self.max_num_batched_tokens < needed:
            raise ValueError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) must be at least max_num_seqs "
                f"({self.max_num_seqs}) plus block_size ({self.block_size}): every running request decodes one token "
                f"a step, and prompts go on beside them by whole blocks"
            )

    def on_device(self, device: str) -> EngineConfig:
        """The same settings with "auto" decided and the device's automatic values filled in."""
        return replace(self, device=device)


def read_config(values: Mapping[str, Any]) -> EngineConfig:
    """Build a config from plain JSON values.

    Raises:
        ValueError: an unknown or missing name, or a value out of range; the message names it.
    """
    known = {field.name: str(field.type) for field in fields(EngineConfig)}
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise ValueError(f"unknown engine settings: {', '.join(unknown)}")
    as_typed: dict[str, Any] = {
        name: Path(value) if value is not None and known[name].startswith("Path") else value
        for name, value in values.items()
    }
    try:
        return EngineConfig(**as_typed)
    except TypeError as error:
        raise ValueError(f"engine settings: {error}") from error
