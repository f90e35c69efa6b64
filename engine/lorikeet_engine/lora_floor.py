"""How fast a layer's linears and their LoRA can be at best: bytes over bandwidth or FLOPs over peak, launch by launch.

What benchmarks of the kernels compare with. A whole step's time is `cost.roofline_seconds`.
"""

from __future__ import annotations

from collections.abc import Collection

from lorikeet_adapters.modules import MODULES
from lorikeet_engine.cost import DeviceProfile
from lorikeet_engine.model_spec import ModelSpec

FLOAT_BYTES = 4

# Linears that read the same input and run as one LoRA launch each.
LORA_SITES = (
    ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    ("self_attn.o_proj",),
    ("mlp.gate_proj", "mlp.up_proj"),
    ("mlp.down_proj",),
)


def base_floor_seconds(spec: ModelSpec, profile: DeviceProfile, n_rows: int, *, itemsize: int = 2) -> float:
    """The layers' own matrix products over `n_rows` tokens at the device's peaks, four launches a layer."""
    return spec.n_layers * sum(
        max(
            (n_in * n_out + n_rows * (n_in + n_out)) * itemsize / profile.peak_bandwidth,
            2 * n_rows * n_in * n_out / profile.peak_flops,
        )
        for _, n_in, n_out in _launches(spec, MODULES)
    )


def lora_floor_seconds(
    spec: ModelSpec,
    profile: DeviceProfile,
    *,
    n_rows: int,
    n_adapters: int,
    rank: int,
    modules: Collection[str] = MODULES,
    itemsize: int = 2,
) -> float:
    """Shrink and expand of `n_rows` tokens over distinct adapters, with a plane of float32 between the two."""
    seconds = 0.0
    for n_slices, n_in, n_out in _launches(spec, modules):
        plane = n_rows * n_slices * rank * FLOAT_BYTES
        shrink = (n_adapters * n_slices * rank * n_in + n_rows * n_in) * itemsize + plane
        expand = (n_adapters * rank * n_out + 2 * n_rows * n_out) * itemsize + plane
        seconds += max(shrink / profile.peak_bandwidth, 2 * n_rows * n_slices * rank * n_in / profile.peak_flops)
        seconds += max(expand / profile.peak_bandwidth, 2 * n_rows * rank * n_out / profile.peak_flops)
    return spec.n_layers * seconds


def _launches(spec: ModelSpec, modules: Collection[str]) -> list[tuple[int, int, int]]:
    """Per launch of a layer: how many linears it joins, their input width, and the sum of their output widths."""
    linears = spec.module_table("").linears
    sites = [[linears[module] for module in site if module in modules] for site in LORA_SITES]
    return [(len(site), site[0].in_features, sum(linear.out_features for linear in site)) for site in sites if site]
