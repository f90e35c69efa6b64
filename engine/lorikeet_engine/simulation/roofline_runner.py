"""A device that is arithmetic: a step takes as long as its bytes, FLOPs and copies do on the device's profile.

Or as long as a given function says, where somebody has measured. Nothing is computed. Tokens are arbitrary, and an
answer ends where the workload says that it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lorikeet_engine.cost import (
    DeviceProfile,
    ModelCost,
    StepShape,
    load_seconds,
    lora_row_flops,
    roofline_seconds,
)
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.scheduling.plan import Phase, StepPlan, StepResult
from lorikeet_engine.simulation.virtual_disk import VirtualImage
from lorikeet_engine.simulation.workload.arrival import N_WORDS

DECODE = Phase.DECODE
ANY_TOKEN = N_WORDS - 1  # a mask: every position gives some word


@dataclass(slots=True, kw_only=True)
class RooflineRunner:
    """The runner of a simulation.

    Attributes:
        adapter_grains: size of every adapter.
        ends_at: how many tokens the answer of a request takes, where it ends before its `max_tokens`; the world's.
        busy_s: how long the last step took.
        placement_s: what bringing adapters into the arena took, of all steps.
        itemsize: of an adapter's weights.
        step_seconds: what a step's rows take; None = what the profile's roofline says.
    """

    cost: ModelCost
    profile: DeviceProfile
    adapter_grains: Mapping[AdapterKey, int]
    grain_bytes: int
    block_bytes: int
    eos: int
    ends_at: dict[str, int] = field(default_factory=dict)
    busy_s: float = 0.0
    placement_s: float = 0.0
    n_placements: int = 0
    itemsize: int = 2
    step_seconds: Callable[[StepShape], float] | None = None

    def begin(self) -> None:
        self.busy_s = 0.0

    def spent(self) -> float:
        return self.busy_s

    def execute(self, plan: StepPlan) -> StepResult:
        shape, sampled = self._compute(plan)
        seconds = self._copy_seconds(plan)
        if plan.rows:
            seconds += (
                roofline_seconds(self.cost, self.profile, shape)
                if self.step_seconds is None
                else self.step_seconds(shape)
            )
        self.busy_s += seconds
        return StepResult(plan.step_id, sampled, seconds)

    def write_extent(self, base_grain: int, image: VirtualImage) -> float:  # noqa: ARG002
        """A placement waits for the host's bus."""
        self.n_placements += 1
        return self._placed(load_seconds(image.n_grains * self.grain_bytes, self.profile.host_bandwidth))

    def move_extent(self, source_grain: int, target_grain: int, n_grains: int) -> float:  # noqa: ARG002
        """Read and written on the device."""
        return self._placed(2 * n_grains * self.grain_bytes / self.profile.peak_bandwidth)

    def _placed(self, seconds: float) -> float:
        self.placement_s += seconds
        self.busy_s += seconds
        return seconds

    def _compute(self, plan: StepPlan) -> tuple[StepShape, dict[str, int]]:
        """One pass over the rows; local sums, since this is most of what a simulation does."""
        sampled: dict[str, int] = {}
        ends_at, eos = self.ends_at, self.eos
        n_decode = decode_context = n_prefill = pairs = prefill_context = lora_bytes = lora_flops = 0
        seen: set[AdapterKey] = set()
        last: AdapterKey | None = None
        row_flops = 0
        for request_id, phase, token_ids, start, _, adapter, _, samples, _, n_generated in plan.rows:
            n_tokens = 1
            if phase is DECODE:
                n_decode += 1
                decode_context += start + 1
            else:
                n_tokens = len(token_ids)
                n_prefill += n_tokens
                pairs += n_tokens * start + n_tokens * (n_tokens + 1) // 2
                prefill_context += start
            if adapter is not None:
                if adapter is not last:
                    last = adapter
                    n_bytes = self.adapter_grains[adapter] * self.grain_bytes
                    row_flops = lora_row_flops(n_bytes, itemsize=self.itemsize)
                    if adapter not in seen:
                        seen.add(adapter)
                        lora_bytes += n_bytes
                lora_flops += n_tokens * row_flops
            if samples:
                ends = n_generated + 1 == ends_at.get(request_id)
                sampled[request_id] = eos if ends else start & ANY_TOKEN
        shape = StepShape(
            n_decode, decode_context, n_prefill, pairs, prefill_context, len(sampled), lora_bytes, lora_flops
        )
        return shape, sampled

    def _copy_seconds(self, plan: StepPlan) -> float:
        """Swaps run beside steps for the most part; device copies are fast."""
        profile = self.profile
        swapped = (len(plan.swap_outs) + len(plan.swap_ins)) * self.block_bytes
        seconds = profile.copy_waited * load_seconds(swapped, profile.host_bandwidth)
        return seconds + 2 * len(plan.copies) * self.block_bytes / profile.peak_bandwidth
