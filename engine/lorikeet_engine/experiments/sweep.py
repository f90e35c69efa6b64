"""Runs a scenario's setups one after another and makes the record of the run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from lorikeet_engine.experiments.record import PointRecord, RunRecord
from lorikeet_engine.experiments.scenarios.setup import Scenario
from lorikeet_engine.experiments.targets.target import Target


def run_sweep(scenario: Scenario, target: Target, told: Callable[[PointRecord], None] | None = None) -> RunRecord:
    """`told` of every point as soon as it is there.

    Raises:
        DescriptionError: a setup cannot be run on this target.
    """
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    points: list[PointRecord] = []
    for setup in scenario.setups:
        point = target.run(setup)
        points.append(point)
        if told:
            told(point)
    return RunRecord(
        name=scenario.name,
        axis=scenario.axis,
        source=target.source,
        target=f"{target.machine.model} on {target.machine.device}",
        started_at=started_at,
        machine=target.machine,
        points=points,
    )
