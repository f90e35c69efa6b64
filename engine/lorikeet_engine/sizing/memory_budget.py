"""Where the memory goes, decided once at start and printed as a table whose rows add up.

On a CPU everything is the same memory: what a GPU keeps on the host (adapter images, swapped KV blocks) counts here
too. A GPU's table is of its own memory, and what stays on the host is only checked against the host's. Also what
follows from the table: how many requests of full length fit, what `max_num_seqs` that suggests, and the
`kv_cache_bytes` that would use what is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lorikeet_engine.config import MIB, EngineConfig
from lorikeet_engine.cost import blocks_for, kv_block_bytes, suggested_max_num_seqs, theoretical_concurrency
from lorikeet_engine.errors import UnsupportedModel
from lorikeet_engine.model_spec import ModelSpec
from lorikeet_engine.ops.lora_planes import planes_size
from lorikeet_engine.sizing.shortage import Shortage
from lorikeet_engine.sizing.step_memory import BYTES_PER_LOGIT, DRAWN_AT_ONCE

KV_SHARE = 0.25  # of the memory available at start, when kv_cache_bytes is not given
RESERVE_BYTES = 256 * MIB  # allocator slack, Python, the tokenizer's and the loader's buffers
DEFAULT_MODEL_LEN = 2048
FLOAT_BYTES = 4

GPU_SHARE = 0.9  # of the GPU's memory, when gpu_memory_utilization is not given
GPU_RESERVE_BYTES = 768 * MIB  # what cuBLAS, Triton and the allocator keep beside the tensors that are counted
GPU_MAX_SEQS = 256  # `max_num_seqs` is chosen up to here
GRAPH_NODE_BYTES = 4096  # one recorded launch: its node, its arguments and the driver's copy, rounded up
LAUNCHES_PER_LAYER = 18
GRAPH_FAMILIES = 2  # with adapters and without
WORD_BYTES, WORDS_OF_A_ROW = 8, 16
ATTENTION_SPLITS = 32  # parts of one row's context, each with a float32 partial result


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """The table; `rows` add up to `available_bytes`.

    Attributes:
        host_adapter_bytes: packed adapters outside the arena.
        swap_bytes: host slots for the KV blocks of preempted requests.
        graph_bytes: recorded steps.
        host_left_bytes: of the host's memory, where that is another one than the device's.
        n_blocks: blocks in the pool, the reserved block 0 among them.
        n_host_slots: blocks that the swap pool holds.
    """

    available_bytes: int
    weights_bytes: int
    arena_bytes: int
    kv_bytes: int
    host_adapter_bytes: int
    swap_bytes: int
    activation_bytes: int
    reserve_bytes: int
    n_blocks: int
    n_host_slots: int
    block_size: int
    block_bytes: int
    max_model_len: int
    max_num_seqs: int
    graph_bytes: int = 0
    host_left_bytes: int | None = None

    @property
    def left_bytes(self) -> int:
        return self.available_bytes - sum(n_bytes for _, n_bytes in self._taken)

    @property
    def rows(self) -> tuple[tuple[str, int], ...]:
        return (*self._taken, ("left", self.left_bytes))

    @property
    def _taken(self) -> tuple[tuple[str, int], ...]:
        is_shared = self.host_left_bytes is None
        return (
            ("weights", self.weights_bytes),
            ("adapter arena", self.arena_bytes),
            *(self._on_host[:1] if is_shared else ()),
            ("KV pool", self.kv_bytes),
            *(self._on_host[1:] if is_shared else ()),
            ("activations", self.activation_bytes),
            *(() if is_shared else (("graphs", self.graph_bytes),)),
            ("reserve", self.reserve_bytes),
        )

    @property
    def _on_host(self) -> tuple[tuple[str, int], ...]:
        return ("host adapters", self.host_adapter_bytes), ("swap pool", self.swap_bytes)

    @property
    def request_bytes(self) -> int:
        """KV of one request of `max_model_len` tokens, in whole blocks."""
        return blocks_for(self.max_model_len, self.block_size) * self.block_bytes

    @property
    def concurrency(self) -> float:
        return theoretical_concurrency(max(0, self.n_blocks - 1), self.block_size, self.max_model_len)

    @property
    def suggested_max_num_seqs(self) -> int:
        return suggested_max_num_seqs(self.concurrency)

    @property
    def kv_bytes_to_use_all(self) -> int:
        return max(0, self.kv_bytes + self.left_bytes) // self.block_bytes * self.block_bytes

    def table(self) -> str:
        lines = [f"{name:<14}{n_bytes / MIB:>12.1f} MiB" for name, n_bytes in self.rows]
        lines.append(f"{'available':<14}{self.available_bytes / MIB:>12.1f} MiB")
        if self.host_left_bytes is not None:
            host = (*self._on_host, ("left on host", self.host_left_bytes))
            lines += [f"{name:<14}{n_bytes / MIB:>12.1f} MiB" for name, n_bytes in host]
        lines.append(
            f"{self.request_bytes / MIB:.1f} MiB of KV a request of {self.max_model_len} tokens; "
            f"{max(0, self.n_blocks - 1)} blocks: {self.concurrency:.1f} such requests; "
            f"suggested max_num_seqs {self.suggested_max_num_seqs}; "
            f"kv_cache_bytes {self.kv_bytes_to_use_all} would use what is left"
        )
        return "\n".join(lines)


def served_model_len(config: EngineConfig, spec: ModelSpec) -> int:
    """The longest request served; a limit beyond the model's own is refused, not shortened."""
    if config.max_model_len > spec.max_positions:
        raise UnsupportedModel(f"max_model_len {config.max_model_len} is beyond the model's {spec.max_positions}")
    automatic = min(spec.max_positions, DEFAULT_MODEL_LEN) if config.device == "cpu" else spec.max_positions
    return config.max_model_len or automatic


def plan_memory(
    config: EngineConfig,
    spec: ModelSpec,
    *,
    itemsize: int,
    weights_bytes: int,
    available_bytes: int,
    host_bytes: int | None = None,
    recorded_rows: Sequence[int] = (),
) -> MemoryBudget:
    """Divide `available_bytes` of the device, counted before the weights were loaded, and `host_bytes` of the host.

    Args:
        host_bytes: None where device and host are the same memory.
        recorded_rows: the numbers of rows for which steps are recorded, with adapters and without.

    Raises:
        UnsupportedModel: a request of `max_model_len` tokens, or the sum of the rows, does not fit, or two settings
            contradict each other; with the numbers.
    """
    block = kv_block_bytes(spec, block_size=config.block_size, itemsize=itemsize)
    max_model_len = served_model_len(config, spec)
    _check_whole_prompts(config, max_model_len)
    if 0 < config.swap_space < block:
        raise UnsupportedModel(f"swap_space {config.swap_space} does not hold one KV block of {block} bytes")
    is_gpu = host_bytes is not None
    rows = config.max_num_seqs or min(GPU_MAX_SEQS, config.max_num_batched_tokens - config.block_size)
    activations = (
        gpu_activation_bytes(config, spec, itemsize=itemsize, rows=rows)
        if is_gpu
        else activation_bytes(config, spec, itemsize=itemsize, max_model_len=max_model_len)
    )
    swap_bytes = config.swap_space // block * block
    empty = MemoryBudget(
        available_bytes=available_bytes,
        weights_bytes=weights_bytes,
        arena_bytes=config.adapter_pool_bytes,
        kv_bytes=0,
        host_adapter_bytes=config.host_adapter_cache_bytes,
        swap_bytes=swap_bytes,
        activation_bytes=activations,
        reserve_bytes=GPU_RESERVE_BYTES if is_gpu else RESERVE_BYTES,
        n_blocks=0,
        n_host_slots=config.swap_space // block,
        block_size=config.block_size,
        block_bytes=block,
        max_model_len=max_model_len,
        max_num_seqs=rows,
        graph_bytes=graph_bytes(config, spec, recorded_rows, max_model_len=max_model_len),
        host_left_bytes=None if host_bytes is None else host_bytes - config.host_adapter_cache_bytes - swap_bytes,
    )
    return _with_pool(empty, config)


def _with_pool(empty: MemoryBudget, config: EngineConfig) -> MemoryBudget:
    """Give the KV pool its part of the table, refuse what does not add up, and seat what then fits."""
    is_gpu, block = empty.host_left_bytes is not None, empty.block_bytes
    automatic = max(0, empty.left_bytes) if is_gpu else int(empty.available_bytes * KV_SHARE)
    wanted = config.kv_cache_bytes or automatic
    needed = blocks_for(empty.max_model_len, config.block_size) + 1  # and the reserved block 0
    budget = replace(empty, kv_bytes=wanted // block * block, n_blocks=wanted // block)
    if wanted // block < needed:
        raise UnsupportedModel(
            f"one request of max_model_len {empty.max_model_len} tokens needs kv_cache_bytes {needed * block}, "
            f"there are {wanted}\n{_explained(budget, config, needed)}"
        )
    if budget.left_bytes < 0:
        raise UnsupportedModel(f"{-budget.left_bytes} bytes short of memory\n{_explained(budget, config, needed)}")
    if budget.host_left_bytes is not None and budget.host_left_bytes < 0:
        raise UnsupportedModel(
            f"{-budget.host_left_bytes} bytes short of memory on the host: lower host_adapter_cache_bytes or "
            f"swap_space, or free memory\n{budget.table()}"
        )
    if config.max_num_seqs:
        return budget
    return replace(budget, max_num_seqs=min(budget.max_num_seqs, budget.suggested_max_num_seqs))


def _explained(budget: MemoryBudget, config: EngineConfig, needed: int) -> str:
    """The table, and three ways out; `needed` blocks hold the longest request."""
    others = {"adapter_pool_bytes": budget.arena_bytes}
    if budget.host_left_bytes is None:
        others |= {"host_adapter_cache_bytes": budget.host_adapter_bytes, "swap_space": budget.swap_bytes}
        more = "free memory of this machine, or take a smaller model or quantization int8"
    else:
        share = config.gpu_memory_utilization or GPU_SHARE
        more = f"end what else holds the GPU, or raise gpu_memory_utilization above {share:g}"
    shortage = Shortage(
        room_bytes=budget.kv_bytes + budget.left_bytes,
        wanted_bytes=budget.kv_bytes,
        least_bytes=needed * budget.block_bytes,
        block_bytes=budget.block_bytes,
        block_size=budget.block_size,
        others={name: n_bytes for name, n_bytes in others.items() if n_bytes},
        more=more,
    )
    return f"{budget.table()}\n{shortage.ways_out()}"


def _check_whole_prompts(config: EngineConfig, max_model_len: int) -> None:
    """Without chunks the longest prompt goes into one step, beside a token for every running request."""
    needed = max_model_len + config.max_num_seqs
    if not config.enable_chunked_prefill and config.max_num_batched_tokens < needed:
        raise UnsupportedModel(
            f"enable_chunked_prefill is off, so max_num_batched_tokens ({config.max_num_batched_tokens}) must be at "
            f"least max_model_len ({max_model_len}) plus max_num_seqs ({config.max_num_seqs}), {needed}: raise it, "
            f"lower max_model_len, or turn enable_chunked_prefill on"
        )


def activation_bytes(config: EngineConfig, spec: ModelSpec, *, itemsize: int, max_model_len: int) -> int:
    """The most that one step holds at once: the widest layer's tensors, one layer's gathered pages, the logits."""
    tokens, rows = config.max_num_batched_tokens, config.max_num_seqs
    heads = spec.n_heads + 2 * spec.n_kv_heads
    hidden = tokens * (3 * spec.hidden + 2 * heads * spec.head_dim + 3 * spec.intermediate) * itemsize
    gathered = 2 * rows * max_model_len * spec.n_kv_heads * spec.head_dim * itemsize
    masks = tokens * max_model_len * itemsize
    logits = rows * spec.vocab * (itemsize + 2 * FLOAT_BYTES)
    return hidden + gathered + masks + logits


def gpu_activation_bytes(config: EngineConfig, spec: ModelSpec, *, itemsize: int, rows: int) -> int:
    """The most that one step on a GPU holds at once; its kernels read pages and masks where they are."""
    tokens = config.max_num_batched_tokens
    heads = spec.n_heads + 2 * spec.n_kv_heads
    hidden = tokens * (3 * spec.hidden + 2 * heads * spec.head_dim + 3 * spec.intermediate) * itemsize
    partials = rows * ATTENTION_SPLITS * spec.n_heads * (spec.head_dim + 1) * FLOAT_BYTES
    planes = planes_size(tokens, config.max_rank) * FLOAT_BYTES
    logits = rows * spec.vocab * itemsize
    draws = min(rows, DRAWN_AT_ONCE) * spec.vocab * BYTES_PER_LOGIT
    # A recorded step holds its own, in memory that only recordings use.
    return hidden + 2 * (partials + logits) + planes + draws


def graph_bytes(config: EngineConfig, spec: ModelSpec, recorded_rows: Sequence[int], *, max_model_len: int) -> int:
    """Recorded launches, and the words of each recorded step: a row's part of the block table and its integers."""
    row = WORD_BYTES * (blocks_for(max_model_len, config.block_size) + WORDS_OF_A_ROW)
    launches = spec.n_layers * LAUNCHES_PER_LAYER * GRAPH_NODE_BYTES
    return sum(GRAPH_FAMILIES * (launches + n_rows * row) for n_rows in recorded_rows)
