"""Pictures that the documentation shows of a sweep's report; run by itself, those of the published experiment.

python benchmarks/pictures.py
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path
from tempfile import TemporaryDirectory

from lorikeet_engine.experiments.record import RunRecord
from lorikeet_engine.experiments.scenarios.named import PUBLISHED, named_scenario
from lorikeet_engine.experiments.sweep import run_sweep
from lorikeet_engine.experiments.targets.on_simulator import simulator_target
from lorikeet_platform.tools.bench.report import draw

IMAGES = Path(__file__).parents[1] / "docs" / "images"
PUBLISHED_PICTURES = ("points.png", "device.png", "time-4096.png")


def draw_pictures(record: RunRecord, names: Collection[str], prefix: str) -> None:
    """Those of the record's report, as `PREFIX-NAME`."""
    with TemporaryDirectory() as folder:
        for picture in draw(record, Path(folder)):
            if picture.name in names:
                shutil.copy(picture, IMAGES / f"{prefix}-{picture.name}")


def main() -> None:
    target = simulator_target(PUBLISHED.model, PUBLISHED.device)
    draw_pictures(run_sweep(named_scenario("lengths", PUBLISHED), target), PUBLISHED_PICTURES, "published")


if __name__ == "__main__":
    main()
