"""Everything that wants a GPU, in one run of under nine minutes on a machine that has little besides it.

    python benchmarks/gpu_check.py [--dry-run] [--json FILE] [--seconds 520]

Correctness first (the case table of the tests, repeats bit by bit, streams against a device that computes at once),
then the kernels, then whole steps; one table at the end, and the same as JSON in `--json`, `$OUT` or
`benchmarks/results`. Needs Python, torch, triton and transformers, and no installation of this repository.

`--dry-run` is for a machine without a GPU: it compiles what a GPU would be asked for, ahead of time, interprets a few
cases, and runs every benchmark's functions on toy shapes. Its times mean nothing and are not kept.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
for source in ("adapters", "engine", "."):
    sys.path.insert(0, str(ROOT / source))
DRY_RUN = "--dry-run" in sys.argv
if DRY_RUN:  # before triton is imported, which reads it once
    os.environ["TRITON_INTERPRET"] = "1"

import engine_gpu  # noqa: E402
import kernels  # noqa: E402
import torch  # noqa: E402
from figures import Figure, at_most, present, print_table, write_json  # noqa: E402
from gpu_compile import compile_everything  # noqa: E402
from gpu_correctness import Check, check_all  # noqa: E402
from gpu_streams import check_streams  # noqa: E402
from gpu_timing import BROKE, IS_GPU  # noqa: E402
from machine import gpu_machine  # noqa: E402

BUDGET_S = 520.0
CORRECTNESS_S = 220.0  # most of it for compiling; what is not reached then is said
QUICK_BELOW_S = 200.0  # what is left for a part below which it measures less

OF_TOLERANCE = ", as a part of the tolerance"
FAR_OFF = 1e9  # what is not finite, in a number that JSON knows

Part = Callable[[bool], list[Figure]]


def check_figures(checks: Sequence[Check]) -> list[Figure]:
    """The largest error of each group, as a part of what is allowed."""
    for check in checks:
        if check.wrong:
            print(f"WRONG: {check.name}: {', '.join(check.wrong)}", flush=True)  # noqa: T201
    return [
        at_most(
            f"{check.name}: worst of {check.n_cases}{'' if check.is_whole else ' reached'}{OF_TOLERANCE}",
            min(check.worst, FAR_OFF),
            "",
            1.0,
        )
        for check in checks
    ]


def correctness(quick: bool) -> list[Figure]:
    del quick
    return check_figures(check_all(time.perf_counter() + CORRECTNESS_S))


def streams(quick: bool) -> list[Figure]:
    del quick
    return check_figures([check_streams()])


PARTS: tuple[tuple[str, Part], ...] = (
    ("correctness", correctness),
    ("streams", streams),
    ("kernels", lambda quick: kernels.measure(quick=quick)),
    ("engine", lambda quick: engine_gpu.measure(quick=quick)),
)


def run(seconds: float) -> list[Figure]:
    """All parts; one that breaks is a figure that does not hold, and the others still run."""
    started = time.perf_counter()
    figures: list[Figure] = []
    for name, part in PARTS:
        left = seconds - (time.perf_counter() - started)
        print(f"-- {name}, {left:.0f} s left", flush=True)  # noqa: T201
        begun = time.perf_counter()
        try:
            figures += part(left < QUICK_BELOW_S)
        except Exception:
            if DRY_RUN:
                raise
            print(f"{name} broke:\n{traceback.format_exc()}", flush=True)  # noqa: T201
            figures.append(Figure(f"{name}{BROKE}", 0, "", "1", False))
        figures.append(Figure(f"{name} took", time.perf_counter() - begun, "s"))
    figures.append(at_most("the whole check took", time.perf_counter() - started, "s", 540))
    return figures


def output_file(options: Namespace) -> Path:
    folder = Path(os.environ["OUT"]) if "OUT" in os.environ else ROOT / "benchmarks" / "results"
    return options.json or folder / "gpu_check.json"


def main() -> int:
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dry-run", action="store_true", help="without a GPU: compile, interpret, run on toy shapes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    parser.add_argument("--seconds", type=float, default=BUDGET_S, help="what the run may take")
    options = parser.parse_args()
    if options.dry_run:
        return dry_run()
    if not IS_GPU:
        sys.stderr.write("gpu_check: no CUDA device; --dry-run needs none\n")
        return 2
    file, machine = output_file(options), gpu_machine()
    print_table("Machine", ("what", "value"), [(name, str(value)) for name, value in machine.items()])
    file.with_name("gpu_machine.json").write_text(json.dumps(machine, indent=2) + "\n")
    torch.manual_seed(1)
    figures = run(options.seconds)
    write_json(figures, file)
    present(f"GPU check on {torch.cuda.get_device_name()}, kept in {file}", figures, None)
    return int(is_wrong(figures))


def dry_run() -> int:
    """Fails where a run on a GPU machine would die of something that has nothing to do with the GPU."""
    rows = [(name, str(n)) for name, n in compile_everything().items()]
    print_table("Compiled ahead of time", ("target", "kernels"), rows)
    figures = run(BUDGET_S)
    names = [(figure.name,) for figure in figures]
    print_table("Figures of a run (their values need a GPU)", ("figure",), names)
    return int(is_wrong(figures))


def is_wrong(figures: Sequence[Figure]) -> bool:
    """Whether something computed what it should not, or broke; a target missed is neither."""
    return any(figure.holds is False and figure.name.endswith((OF_TOLERANCE, BROKE)) for figure in figures)


if __name__ == "__main__":
    sys.exit(main())
