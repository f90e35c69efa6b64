"""`python -m lorikeet_engine.experiments SWEEP --json FILE`: a sweep on a real engine, in a process of its own.

A process of its own because it needs torch and the machine, and its caller neither. Each line of standard output is one
point as it is done, in JSON; the record is in FILE. A refusal is one line on standard error and exit status 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from lorikeet_engine.errors import UnsupportedModel
from lorikeet_engine.experiments.record import PointRecord, write_record
from lorikeet_engine.experiments.scenarios.choice import choose_scenario
from lorikeet_engine.experiments.sweep import run_sweep
from lorikeet_engine.experiments.targets.on_engine import engine_target
from lorikeet_engine.models.package import resolve_model
from lorikeet_engine.simulation.workload.strict_records import DescriptionError


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m lorikeet_engine.experiments", description=__doc__)
    parser.add_argument("sweep", help="a sweep's name, or the file of one")
    parser.add_argument("--model", help="a local directory, package:NAME, or a hub id org/name")
    parser.add_argument("--device", help="auto, cpu or cuda")
    parser.add_argument("--models-dir", type=Path, default=Path("var/models"), help="where converted models are kept")
    parser.add_argument("--json", type=Path, required=True, metavar="FILE", help="write the record here")
    options = parser.parse_args(arguments)
    try:
        scenario = choose_scenario(options.sweep, "engine", model=options.model, device=options.device)
        target = engine_target(resolve_model(scenario.model, options.models_dir), scenario.device)
        record = run_sweep(scenario, target, _tell)
    except (DescriptionError, UnsupportedModel, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    write_record(record, options.json)
    return 0


def _tell(point: PointRecord) -> None:
    sys.stdout.write(json.dumps({"setup": point.setup, "seconds": point.seconds}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
