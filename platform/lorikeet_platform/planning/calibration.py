"""What an engine's own steps say about how long steps take."""

from __future__ import annotations

from dataclasses import dataclass

from lorikeet_platform.planning.pace import Ranges, StepSeconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """
    Attributes:
        error_span: factors on a prediction that hold 90 % of the steps kept out of the fit.
        error_p50, error_p90: of those steps, |predicted − measured| / measured.
        host_overhead_s: the host's own time between two steps.
    """

    step_seconds: StepSeconds
    ranges: Ranges
    n_steps: int
    error_span: tuple[float, float]
    error_p50: float
    error_p90: float
    host_overhead_s: float
