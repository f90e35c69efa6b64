"""What is measured in seconds, and the bins it is counted in; the same ones for every histogram of the engine."""

from __future__ import annotations

# Upper bounds of the histograms of seconds, latencies and steps alike; one more bin takes what is longer.
BOUNDS_S = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0),
)
MEASURES = ("queue", "adapter_wait", "prefill", "ttft", "itl", "tpot", "e2e")
