"""Every formula about bytes, work and the time they take, once.

The planner, the counters, the admission predictor, the choice between swapping and recomputing, and the simulator all
compute with these functions, so they cannot disagree. Plain arithmetic over a model's shape and a device's constants;
the model that learns from measured steps is `step_time`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from lorikeet_adapters.modules import MODULES
from lorikeet_engine.model_spec import ModelSpec

DEVICES = Path(__file__).parent / "simulation" / "devices"  # profiles that come with the engine
SUGGESTED_LOAD = 0.65  # max_num_seqs suggested, as a share of the theoretical concurrency (60–70 %)
SCALE_BYTES = 4  # of an output whose weights are integers
SWAP_BOUNDARIES = 2  # steps that a swapped request loses, however small it is


# -- the model ---------------------------------------------------------------------------------------------------------


def kv_bytes_per_token(spec: ModelSpec, *, itemsize: int) -> int:
    """Keys and values of one token over all layers: 2 · layers · kv_heads · head_dim · itemsize."""
    return 2 * spec.n_layers * spec.n_kv_heads * spec.head_dim * itemsize


def kv_block_bytes(spec: ModelSpec, *, block_size: int, itemsize: int) -> int:
    return kv_bytes_per_token(spec, itemsize=itemsize) * block_size


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCost:
    """What one token costs on one model. Windowed layers are counted as full ones.

    Attributes:
        layer_params: weights of all layers' linears, each multiplied once a token.
        head_params: weights of the output head, multiplied once a sampled token.
        attention_flops_per_pair: FLOPs of one query meeting one key: 4 · layers · heads · head_dim.
        layer_bytes: the layers' weights in memory; read once a step, however many tokens it computes.
        head_bytes: likewise the head's, read when a step samples.
        embedding_bytes: one row of the embedding table.
    """

    layer_params: int
    head_params: int
    attention_flops_per_pair: int
    kv_bytes_per_token: int
    layer_bytes: int
    head_bytes: int
    embedding_bytes: int = 0

    @classmethod
    def of(cls, spec: ModelSpec, *, itemsize: int = 2, int8_weights: bool = False) -> ModelCost:
        """`itemsize` of the activations, and of the weights unless they are integers, with a scale for each output."""
        qkv = (spec.n_heads + 2 * spec.n_kv_heads) * spec.head_dim
        out = spec.n_heads * spec.head_dim * spec.hidden
        layer_params = spec.n_layers * (spec.hidden * qkv + out + 3 * spec.hidden * spec.intermediate)
        layer_outputs = spec.n_layers * (qkv + 2 * spec.hidden + 2 * spec.intermediate)
        head_params = spec.vocab * spec.hidden
        weight_bytes, output_bytes = (1, SCALE_BYTES) if int8_weights else (itemsize, 0)
        return cls(
            layer_params=layer_params,
            head_params=head_params,
            attention_flops_per_pair=4 * spec.n_layers * spec.n_heads * spec.head_dim,
            kv_bytes_per_token=kv_bytes_per_token(spec, itemsize=itemsize),
            layer_bytes=layer_params * weight_bytes + layer_outputs * output_bytes,
            head_bytes=head_params * weight_bytes + spec.vocab * output_bytes,
            embedding_bytes=spec.hidden * itemsize,
        )

    @property
    def weights_bytes(self) -> int:
        """What a sampling step reads of the weights."""
        return self.layer_bytes + self.head_bytes

    def flops_per_token(self, context: int) -> int:
        """One token that looks back at `context` others, its sampling not counted: 2·N + 4·d·layers·context."""
        return 2 * self.layer_params + self.attention_flops_per_pair * context


def adapter_bytes(spec: ModelSpec, rank: int, *, itemsize: int = 2, modules: Collection[str] = MODULES) -> int:
    """One adapter with `rank` on each of `modules`, in every layer."""
    linears = spec.module_table("").linears
    widths = sum(linears[module].in_features + linears[module].out_features for module in modules)
    return spec.n_layers * rank * widths * itemsize


def lora_row_flops(n_bytes: int, *, itemsize: int = 2) -> int:
    """One token through an adapter of `n_bytes`: every weight of it is multiplied and added once."""
    return 2 * n_bytes // itemsize


# -- one step ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class StepShape:
    """What one step computes, in counts; filled while a plan is built.

    Attributes:
        n_decode: rows that compute one token each.
        decode_context: tokens those rows attend to, their own among them.
        n_prefill: prompt tokens computed.
        prefill_pairs: (query, key) pairs of the prompt tokens: Σ n·context + n(n+1)/2.
        prefill_context: tokens that were there before, Σ context; a chunk reads them once.
        n_sampled: rows that sample.
        lora_bytes: size of the distinct adapters in the step.
        lora_flops: Σ over LoRA tokens of `lora_row_flops`.
    """

    n_decode: int = 0
    decode_context: int = 0
    n_prefill: int = 0
    prefill_pairs: int = 0
    prefill_context: int = 0
    n_sampled: int = 0
    lora_bytes: int = 0
    lora_flops: int = 0

    def add_decode(self, context: int) -> None:
        """One more decode row behind `context` tokens; it samples."""
        self.n_decode += 1
        self.decode_context += context + 1
        self.n_sampled += 1

    def add_prefill(self, n: int, context: int, *, samples: bool) -> None:
        """`n` more prompt tokens behind `context` tokens."""
        self.n_prefill += n
        self.prefill_pairs += n * context + n * (n + 1) // 2
        self.prefill_context += context
        self.n_sampled += samples


@dataclass(frozen=True, slots=True)
class StepWork:
    """Work of one step or of many. What LoRA takes is in the totals as well as by itself."""

    flops: int = 0
    lora_flops: int = 0
    read_bytes: int = 0
    write_bytes: int = 0
    lora_bytes: int = 0

    def __add__(self, other: StepWork) -> StepWork:
        return StepWork(
            self.flops + other.flops,
            self.lora_flops + other.lora_flops,
            self.read_bytes + other.read_bytes,
            self.write_bytes + other.write_bytes,
            self.lora_bytes + other.lora_bytes,
        )

    def __sub__(self, other: StepWork) -> StepWork:
        """The work of a window, between two readings of the totals."""
        return StepWork(
            self.flops - other.flops,
            self.lora_flops - other.lora_flops,
            self.read_bytes - other.read_bytes,
            self.write_bytes - other.write_bytes,
            self.lora_bytes - other.lora_bytes,
        )


def step_work(cost: ModelCost, shape: StepShape) -> StepWork:
    """FLOPs and bytes of a step: each weight is read once; blocks that requests share are read by each of them."""
    tokens = shape.n_decode + shape.n_prefill
    return StepWork(
        flops=2 * cost.layer_params * tokens
        + 2 * cost.head_params * shape.n_sampled
        + cost.attention_flops_per_pair * (shape.decode_context + shape.prefill_pairs)
        + shape.lora_flops,
        lora_flops=shape.lora_flops,
        read_bytes=(cost.layer_bytes if tokens else 0)
        + (cost.head_bytes if shape.n_sampled else 0)
        + cost.embedding_bytes * tokens
        + cost.kv_bytes_per_token * (shape.decode_context + shape.prefill_context)
        + shape.lora_bytes,
        write_bytes=cost.kv_bytes_per_token * tokens,
        lora_bytes=shape.lora_bytes,
    )


# -- the device --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProfile:
    """Constants of one device, in FLOP/s, bytes/s, bytes and seconds.

    Attributes:
        peak_flops: dense peak in the served dtype; never the 2:4-sparse figure.
        host_bandwidth: between host and device memory, one way.
        mfu_prefill: share of `peak_flops` that long prompts reach.
        mbu: share of `peak_bandwidth` that decoding reaches.
        copy_waited: share of a copy between host and device that steps wait for; the rest runs beside them.
        step_overhead_s: a step's time that depends on nothing in it.
        row_overhead_s: what each decode row adds beyond its bytes and FLOPs.
        lora_overhead_s: what a step with LoRA rows adds beyond their bytes and FLOPs.
        shares_host_memory: the device computes in the host's own memory, as a CPU does.
        source: where the constants come from.
    """

    name: str
    peak_flops: float
    peak_bandwidth: float
    memory_bytes: int
    host_bandwidth: float
    disk_bandwidth: float
    mfu_prefill: float
    mbu: float
    step_overhead_s: float
    copy_waited: float = 0.3
    row_overhead_s: float = 0.0
    lora_overhead_s: float = 0.0
    shares_host_memory: bool = False
    source: str = ""

    def __post_init__(self) -> None:
        for name in ("peak_flops", "peak_bandwidth", "memory_bytes", "host_bandwidth", "disk_bandwidth"):
            if not getattr(self, name) > 0:
                raise ValueError(f"device profile {self.name}: {name} {getattr(self, name)} is not positive")
        for name in ("mfu_prefill", "mbu", "copy_waited"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"device profile {self.name}: {name} {getattr(self, name)} is not a share")
        for name in ("step_overhead_s", "row_overhead_s", "lora_overhead_s"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"device profile {self.name}: {name} {getattr(self, name)} is negative")


def read_profile(values: Mapping[str, Any]) -> DeviceProfile:
    """Build a profile from plain JSON values.

    Raises:
        ValueError: an unknown or missing name, or a value out of range; the message names it.
    """
    names = [field.name for field in fields(DeviceProfile)]
    if unknown := sorted(set(values) - set(names)):
        raise ValueError(f"device profile: unknown {', '.join(unknown)}; known: {', '.join(names)}")
    required = [field.name for field in fields(DeviceProfile) if field.default is MISSING]
    if missing := [name for name in required if name not in values]:
        raise ValueError(f"device profile: {', '.join(missing)} is missing")
    return DeviceProfile(**values)


def load_profile(path: Path) -> DeviceProfile:
    return read_profile(json.loads(path.read_text()))


def roofline_seconds(cost: ModelCost, profile: DeviceProfile, shape: StepShape) -> float:
    """How long a step takes at least, at the shares of the peaks that the device reaches.

    Kernels run one after another, each bound by its FLOPs or by its bytes, so the parts' maxima are added: in a mixed
    step the decode rows' KV reads do not hide behind the prompt's matrix products.
    """
    tokens = shape.n_decode + shape.n_prefill
    flops_s = profile.peak_flops * profile.mfu_prefill
    bytes_s = profile.peak_bandwidth * profile.mbu
    pair, kv = cost.attention_flops_per_pair, cost.kv_bytes_per_token
    seconds = profile.step_overhead_s + profile.row_overhead_s * shape.n_decode
    if tokens:
        moved = cost.layer_bytes + (cost.embedding_bytes + kv) * tokens
        seconds += max(2 * cost.layer_params * tokens / flops_s, moved / bytes_s)
        seconds += max(pair * shape.prefill_pairs / flops_s, kv * shape.prefill_context / bytes_s)
        seconds += max(pair * shape.decode_context / flops_s, kv * shape.decode_context / bytes_s)
    if shape.n_sampled:
        seconds += max(2 * cost.head_params * shape.n_sampled / flops_s, cost.head_bytes / bytes_s)
    if shape.lora_bytes:
        seconds += profile.lora_overhead_s + max(shape.lora_flops / flops_s, shape.lora_bytes / bytes_s)
    return seconds


class Peaks(Protocol):
    """What utilisation is a share of."""

    @property
    def peak_flops(self) -> float: ...
    @property
    def peak_bandwidth(self) -> float: ...


def mfu(work: StepWork, seconds: float, peaks: Peaks) -> float:
    """Model FLOPs utilisation. Work that was thrown away and recomputed belongs to HFU: pass it in to get that."""
    return work.flops / seconds / peaks.peak_flops


def mbu(work: StepWork, seconds: float, peaks: Peaks) -> float:
    return work.read_bytes / seconds / peaks.peak_bandwidth


def intensity(work: StepWork) -> float:
    """FLOPs for each byte read."""
    return work.flops / work.read_bytes


def ridge(peaks: Peaks) -> float:
    """The intensity at which a device turns from bandwidth-bound to compute-bound; MFU / MBU = intensity / ridge."""
    return peaks.peak_flops / peaks.peak_bandwidth


def weight_intensity(batch: int, bytes_per_weight: float) -> float:
    """FLOPs for each byte of weights read when `batch` tokens share the reading."""
    return 2 * batch / bytes_per_weight


# -- moving bytes ------------------------------------------------------------------------------------------------------


def load_seconds(n_bytes: float, bandwidth: float) -> float:
    return n_bytes / bandwidth


def swap_seconds(n_bytes: int, profile: DeviceProfile) -> float:
    """What swapping costs the steps: part of the way out and back, and the boundaries it waits for."""
    out_and_back = load_seconds(2 * n_bytes, profile.host_bandwidth)
    return profile.copy_waited * out_and_back + SWAP_BOUNDARIES * profile.step_overhead_s


def recompute_seconds(
    cost: ModelCost, profile: DeviceProfile, n_tokens: int, survive: float = 0.0, n_steps: int = 1
) -> float:
    """Prefilling `n_tokens` again in `n_steps` chunks, when a part `survive` of it is still in the prefix cache."""
    flops = 2 * cost.layer_params * n_tokens + cost.attention_flops_per_pair * n_tokens * n_tokens / 2
    return (1 - survive) * flops / (profile.mfu_prefill * profile.peak_flops) + n_steps * profile.step_overhead_s


# -- sizing ------------------------------------------------------------------------------------------------------------


class Allocation(NamedTuple):
    """Tokens' worth of KV that some requests hold, and how much of it holds no token."""

    allocated: int
    unused: int


def blocks_for(n_tokens: int, block_size: int) -> int:
    return -(-n_tokens // block_size)


def paged_allocation(lengths: Sequence[int], block_size: int) -> Allocation:
    """At most `block_size - 1` unused a request; with the length cap as block size, reserving whole requests."""
    allocated = sum(blocks_for(length, block_size) for length in lengths) * block_size
    return Allocation(allocated, allocated - sum(lengths))


def reads_per_token(weights_bytes: float, batch: float, context_bytes: float) -> float:
    """Bytes read for each output token, d(b, L) = W/b + L·k: the batch shares the weights, nobody shares the KV."""
    return weights_bytes / batch + context_bytes


def balanced_batch(weights_bytes: float, context_bytes: float) -> float:
    """The batch at which an output token reads as much KV as weights."""
    return weights_bytes / context_bytes


def theoretical_concurrency(n_blocks: int, block_size: int, n_tokens: int) -> float:
    """Requests of `n_tokens` tokens that `n_blocks` blocks hold at once."""
    return n_blocks / blocks_for(n_tokens, block_size)


def suggested_max_num_seqs(concurrency: float) -> int:
    """Running closer to the theoretical limit preempts."""
    return max(1, int(concurrency * SUGGESTED_LOAD))


# -- what a user sees --------------------------------------------------------------------------------------------------


def ttft_seconds(queue_s: float, prefill_s: float) -> float:
    return queue_s + prefill_s


def total_seconds(ttft_s: float, n_tokens: int, itl_s: float) -> float:
    """The first of `n_tokens` output tokens comes with the prefill."""
    return ttft_s + (n_tokens - 1) * itl_s


def attainment(*, met: int, missed: int, rejected: int, expired: int) -> float:
    """The part of all requests that met their targets; refusing work does not improve it."""
    offered = met + missed + rejected + expired
    return met / offered if offered else 1.0


def goodput(met: int, seconds: float) -> float:
    """Requests, or output tokens, a second of requests that met both the TTFT and the TPOT target."""
    return met / seconds


def jain_index(values: Sequence[float]) -> float:
    """Jain's fairness of weighted shares: 1 when all are equal, 1/n when one has everything."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0
