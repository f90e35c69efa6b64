"""Fits the RTX 4090's constants to three published measurements and writes `devices/rtx4090.json`.

Three unknowns, three equations, no rest: the two shorter prompts of the published length sweep give bandwidth and fixed
overhead, one prompt alone gives the prefill rate. Everything else that was published stays unseen, to be predicted.

    python -m lorikeet_engine.simulation.fit
"""

from __future__ import annotations

import json
from dataclasses import asdict

from lorikeet_engine.cost import DEVICES, DeviceProfile, ModelCost, StepShape, step_work
from lorikeet_engine.simulation.shipped import load_model

MODEL = "qwen2.5-7b"
# Time between tokens, p50, 16 requests at once with 256 tokens of output: the published line at two lengths.
CONCURRENCY, OUTPUT = 16, 256
SHORT, LONG = 256, 1024
ITL_S = {SHORT: (16.36 + 0.00099 * SHORT) / 1000, LONG: (16.36 + 0.00099 * LONG) / 1000}
# Time to the first token of one prompt alone.
PROMPT, TTFT_ALONE_S = 1024, 0.0922

# Of the card, not fitted: dense bf16 peak, memory, PCIe 4 x16 and an NVMe disk.
PEAK_FLOPS, PEAK_BANDWIDTH, MEMORY = 165.2e12, 1008e9, 24 * (1 << 30)
HOST_BANDWIDTH, DISK_BANDWIDTH = 25e9, 3e9


def fit() -> DeviceProfile:
    """Solve for mbu, overhead and mfu, in this order; decode steps are bound by bytes, prompts by FLOPs."""
    cost = ModelCost.of(load_model(MODEL))
    short, long = (_decode_bytes(cost, length) for length in (SHORT, LONG))
    bytes_s = (long - short) / (ITL_S[LONG] - ITL_S[SHORT])
    overhead_s = ITL_S[SHORT] - short / bytes_s
    prompt = StepShape()
    prompt.add_prefill(PROMPT, 0, samples=False)
    flops_s = step_work(cost, prompt).flops / (TTFT_ALONE_S - overhead_s - cost.head_bytes / bytes_s)
    return DeviceProfile(
        name="rtx4090",
        source=f"{MODEL}, bf16: ITL p50 of {CONCURRENCY} requests at L={SHORT} and L={LONG}, and the prefill of "
        f"{PROMPT} tokens alone, by lorikeet_engine.simulation.fit. Peaks and buses: vendor.",
        peak_flops=PEAK_FLOPS,
        peak_bandwidth=PEAK_BANDWIDTH,
        memory_bytes=MEMORY,
        host_bandwidth=HOST_BANDWIDTH,
        disk_bandwidth=DISK_BANDWIDTH,
        mfu_prefill=round(flops_s / PEAK_FLOPS, 4),
        mbu=round(bytes_s / PEAK_BANDWIDTH, 4),
        step_overhead_s=round(overhead_s, 6),
    )


def _decode_bytes(cost: ModelCost, length: int) -> float:
    """Read and written by the step in the middle of an answer."""
    shape = StepShape()
    for _ in range(CONCURRENCY):
        shape.add_decode(length + OUTPUT // 2)
    work = step_work(cost, shape)
    return work.read_bytes + work.write_bytes


if __name__ == "__main__":
    path = DEVICES / "rtx4090.json"
    path.write_text(json.dumps(asdict(fit()), indent=2) + "\n")
