"""`Ops` on a CPU by the native library.

Tensors become addresses here and nowhere else: every call hands over those of tensors that its caller holds, with the
dtype and contiguity that the sources expect. The order of the words of a call is that of the struct or of the comment
at the op's source.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from lorikeet_engine.ops.interface import AttentionBatch, LoraBatch, LoraRun, PackedLinear, Recording, SiteShape
from lorikeet_engine.ops.native.scratch import Scratch
from lorikeet_engine.ops.native.tape import Tape, address_of, call, run_of, word_of

LANES = 16  # elements to a vector; every width is a multiple
PANEL = 48  # columns of a packed weight that lie together
WORD_BYTES = 4  # of a weight, along the inputs, that lie together
RUN_WORDS = 3
WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32}
SUFFIX = {torch.bfloat16: "bf16", torch.float32: "f32"}
NAMES = ("linear", "norm", "silu_mul", "rotary_write", "decode_attention", "prefill_attention", "lora", "greedy")


@dataclass(frozen=True, slots=True)
class NativePlan:
    """The rows' pages. `prefill_starts`: int64, first query tokens of the prefill rows and the end."""

    batch: AttentionBatch
    window: int
    block_size: int
    prefill_starts: torch.Tensor


class NativeCpuOps:
    """The serving backend on a CPU with a compiler."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._functions = {
            dtype: {name: address_of(library, f"{name}_{suffix}") for name in NAMES} for dtype, suffix in SUFFIX.items()
        }
        self._gather = address_of(library, "gather_rows")
        self._run = run_of(library)
        self._scratch = Scratch()
        self._tape: Tape | None = None
        self._slices: dict[SiteShape, torch.Tensor] = {}

    def pack_linear(self, *, weight: torch.Tensor, bias: torch.Tensor | None) -> PackedLinear:
        out_features, in_features = weight.shape
        _check(weight.dtype, in_features)
        weight, bias = whole(weight), None if bias is None else whole(bias)
        return PackedLinear(panels(weight, WORD_BYTES // weight.element_size()), bias, in_features, out_features)

    def unpack_linear(self, *, linear: PackedLinear, first: int, end: int, n_rows: int) -> Iterator[torch.Tensor]:
        step = WORD_BYTES // linear.weight.element_size()
        for begin in range(first, end, n_rows):
            yield rows_of_panels(linear, step, begin, min(begin + n_rows, end))

    def linear(self, *, x: torch.Tensor, linear: PackedLinear) -> torch.Tensor:
        return self._multiply(self._functions[x.dtype]["linear"], x, linear)

    def _multiply(self, function: int, x: torch.Tensor, linear: PackedLinear, *more: int) -> torch.Tensor:
        """x by a packed weight; `more`: words of the function's own behind those that every linear has."""
        x = self._rows(x)
        padded = linear.out_features + -linear.out_features % LANES
        out = self._empty((x.shape[0], padded), x.dtype)
        self._emit(
            function,
            out.data_ptr(),
            padded,
            x.data_ptr(),
            x.stride(0),
            linear.weight.data_ptr(),
            0 if linear.bias is None else linear.bias.data_ptr(),
            x.shape[0],
            linear.in_features,
            padded,
            *more,
        )
        return out if padded == linear.out_features else out[:, : linear.out_features]

    def gather_rows(self, *, table: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        table = self._rows(table)
        out = self._empty((rows.shape[0], table.shape[1]), table.dtype)
        self._emit(
            self._gather,
            out.data_ptr(),
            table.data_ptr(),
            table.stride(0) * table.element_size(),
            rows.data_ptr(),
            rows.shape[0],
            table.shape[1] * table.element_size(),
        )
        return out

    def rms_norm(self, *, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        width, heads = x.shape[-1], x.shape[1] if x.dim() > 2 else 1
        _check(x.dtype, width)
        out = self._empty(tuple(x.shape), x.dtype)
        self._norm(out, None, x, None, weight, eps, heads)
        return out

    def add_rms_norm(
        self, *, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        _check(x.dtype, x.shape[-1])
        _check_whole(x, residual)
        out, total = self._empty(tuple(x.shape), x.dtype), self._empty(tuple(x.shape), x.dtype)
        self._norm(out, total, x, residual, weight, eps, 1)
        return out, total

    def _norm(
        self,
        out: torch.Tensor,
        total: torch.Tensor | None,
        x: torch.Tensor,
        residual: torch.Tensor | None,
        weight: torch.Tensor,
        eps: float,
        heads: int,
    ) -> None:
        self._emit(
            self._functions[x.dtype]["norm"],
            out.data_ptr(),
            0 if total is None else total.data_ptr(),
            x.data_ptr(),
            x.stride(0),
            0 if residual is None else residual.data_ptr(),
            weight.data_ptr(),
            x.shape[0],
            x.shape[-1],
            word_of(eps),
            heads,
        )

    def silu_mul(self, *, gate_up: torch.Tensor) -> torch.Tensor:
        n_rows, width = gate_up.shape[0], gate_up.shape[1] // 2
        _check(gate_up.dtype, width)
        _check_whole(gate_up)
        out = self._empty((n_rows, width), gate_up.dtype)
        self._emit(self._functions[gate_up.dtype]["silu_mul"], out.data_ptr(), gate_up.data_ptr(), n_rows, width)
        return out

    def rotary_write_kv(
        self,
        *,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        rotary: tuple[torch.Tensor, torch.Tensor] | None,
        batch: AttentionBatch,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
    ) -> torch.Tensor:
        n_tokens, n_heads, width = q.shape
        out = self._empty((n_tokens, n_heads, width), q.dtype)
        self._emit(
            self._functions[q.dtype]["rotary_write"],
            out.data_ptr(),
            k_cache.data_ptr(),
            v_cache.data_ptr(),
            q.data_ptr(),
            k.data_ptr(),
            v.data_ptr(),
            q.stride(0),
            k.stride(0),
            v.stride(0),
            0 if rotary is None else rotary[0].data_ptr(),
            0 if rotary is None else rotary[1].data_ptr(),
            batch.positions.data_ptr(),
            batch.slot_blocks.data_ptr(),
            batch.slot_offsets.data_ptr(),
            n_tokens,
            n_heads,
            k.shape[1],
            width,
            k_cache.shape[2],
        )
        return out

    def plan_attention(
        self, *, batch: AttentionBatch, window: int, n_kv_heads: int, block_size: int, dtype: torch.dtype
    ) -> NativePlan:
        del n_kv_heads, dtype
        starts = torch.tensor(batch.query_starts[batch.n_decode :])
        if self._tape is not None:
            self._tape.hold(starts)
        return NativePlan(batch, window, block_size, starts)

    def attention(
        self, *, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, plan: NativePlan, scale: float
    ) -> torch.Tensor:
        batch, n_heads, width = plan.batch, q.shape[1], q.shape[2]
        _check(q.dtype, width)
        out = self._empty((q.shape[0], n_heads * width), q.dtype)
        first, functions, tables = batch.n_decode, self._functions[q.dtype], batch.block_tables
        shape = (n_heads, k_cache.shape[1], width, plan.block_size, plan.window, word_of(scale))

        def pages(row: int) -> tuple[int, ...]:
            addresses = (tables[row:].data_ptr(), batch.contexts[row:].data_ptr())
            return (k_cache.data_ptr(), v_cache.data_ptr(), *addresses, tables.stride(0), *shape)

        call_of = (out.data_ptr(), q.data_ptr(), q.stride(0))
        if first:
            self._emit(functions["decode_attention"], *call_of, first, *pages(0))
        if batch.n_rows > first:
            starts = plan.prefill_starts.data_ptr()
            self._emit(functions["prefill_attention"], *call_of, batch.n_rows - first, starts, *pages(first))
        return out

    def lora_code_size(self, n_tokens: int) -> int:
        return 1 + RUN_WORDS * n_tokens

    def encode_runs(self, runs: Sequence[LoraRun], n_tokens: int) -> Sequence[int]:
        """How many runs, and (base, first token, tokens) of each."""
        del n_tokens
        code = [len(runs)]
        for run in runs:
            code += (run.base, run.first_token, run.n_tokens)
        return code

    def add_lora(
        self,
        *,
        out: torch.Tensor,
        x: torch.Tensor,
        arena: torch.Tensor,
        batch: LoraBatch,
        layer: int,
        site: SiteShape,
        base_bias: torch.Tensor | None,
    ) -> None:
        x, slices = self._rows(x), self._slices_of(site)
        self._emit(
            self._functions[x.dtype]["lora"],
            out.data_ptr(),
            out.stride(0),
            x.data_ptr(),
            x.stride(0),
            arena.data_ptr(),
            batch.code.data_ptr(),
            layer,
            slices.data_ptr(),
            len(slices),
            site.in_features,
            0 if base_bias is None else base_bias.data_ptr(),
        )

    def greedy(self, *, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        tokens = self._empty((logits.shape[0],), torch.int64)
        finite = self._empty((logits.shape[0],), torch.bool)
        self._emit(
            self._functions[logits.dtype]["greedy"],
            tokens.data_ptr(),
            finite.data_ptr(),
            logits.data_ptr(),
            logits.stride(0),
            *logits.shape,
        )
        return tokens, finite

    def run(self, compute: Callable[[], torch.Tensor]) -> torch.Tensor:
        """In one parallel region, with its tensors on the scratch: no threads are woken and no memory is faulted in
        for every op."""
        result, _ = self.record(compute)
        return result

    def record(self, compute: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, Recording]:
        self._tape = tape = Tape(self._run, self._scratch)
        try:
            result = compute()
        finally:
            self._tape = None
        tape.replay()
        return result, tape

    def _emit(self, function: int, *words: int) -> None:
        if self._tape is None:
            call(self._run, function, words)
        else:
            self._tape.append(function, words)

    def _empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype) if self._tape is None else self._tape.empty(shape, dtype)

    def _rows(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, in] with every row's elements side by side; rows may lie apart."""
        if x.stride(1) == 1:
            return x
        if self._tape is not None:
            raise ValueError("a recorded step copies nothing by itself")
        return x.contiguous()

    def _slices_of(self, site: SiteShape) -> torch.Tensor:
        """The site's slices as the library reads them; kept, since a recording holds their address."""
        if site not in self._slices:
            for width in (site.in_features, *(width for _, _, width in site.slices)):
                _check(torch.float32, width)
            self._slices[site] = torch.tensor(site.slices, dtype=torch.int64)
        return self._slices[site]


def covers(*widths: int) -> bool:
    """Whether rows of these widths are whole vectors; a vocabulary need not be."""
    return not any(width % LANES for width in widths)


def _check(dtype: torch.dtype, width: int) -> None:
    if dtype not in SUFFIX or width % LANES:
        raise ValueError(f"the native ops do not know rows of {width} {dtype}")


def whole(outputs: torch.Tensor) -> torch.Tensor:
    """A tensor [out, ...] with zeros behind it, up to whole vectors of outputs; only a vocabulary needs them."""
    missing = -outputs.shape[0] % LANES
    return torch.cat([outputs, outputs.new_zeros(missing, *outputs.shape[1:])]) if missing else outputs


def _check_whole(*tensors: torch.Tensor) -> None:
    if not all(tensor.is_contiguous() for tensor in tensors):
        raise ValueError("the native ops read these rows without gaps")


def panels(weight: torch.Tensor, step: int) -> torch.Tensor:
    """[out, in] as panels of `PANEL` columns, the last one narrower: [in / step][columns][step] each, flat."""
    out_features, in_features = weight.shape
    whole = out_features // PANEL * PANEL
    packed = torch.empty(weight.numel(), dtype=weight.dtype)
    for first, count, width in ((0, whole // PANEL, PANEL), (whole, 1, out_features - whole)):
        if count * width:
            part = weight[first : first + count * width].reshape(count, width, in_features // step, step)
            target = packed[first * in_features : (first + count * width) * in_features]
            target.view(count, in_features // step, width, step).copy_(part.transpose(1, 2))
    return packed


def rows_of_panels(linear: PackedLinear, step: int, first: int, end: int) -> torch.Tensor:
    """Rows first to end of what `panels` packed, [rows, in]."""
    dtype, n_words = linear.weight.dtype, linear.in_features // step
    words = linear.weight.view(WORDS[step * dtype.itemsize])  # a step moves as one
    out_features = len(words) // n_words
    whole = out_features // PANEL * PANEL
    low, high = first // PANEL * PANEL, min(-(-end // PANEL) * PANEL, whole)
    parts = []
    for begin, stop, width in ((low, high, PANEL), (max(low, whole), out_features, out_features - whole)):
        if begin < min(stop, end):
            part = words[begin * n_words : stop * n_words].view(-1, n_words, width)
            parts.append(part.transpose(1, 2).contiguous().view(-1, n_words))
    rows = parts[0] if len(parts) == 1 else torch.cat(parts)
    return rows[first - low : end - low].view(dtype)
