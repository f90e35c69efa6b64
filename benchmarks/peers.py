"""Ours against other engines on this CPU: the same prompts, threads and dtype, in turn, as ratios.

    python benchmarks/peers.py MODEL_DIR [--quick] [--json FILE] [--scenario NAME]... [--peer NAME]...

Peers live in environments of their own under `--install` (`make peers`). One that is not installed is listed as absent
and never counts as beaten. docs/benchmarks.md says what counts and how to read the tables.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from figures import Figure, arguments, present
from peer_race.agreement import judge_all
from peer_race.catalogue import OURS, PEERS, judge, ours
from peer_race.contest import Contest, OursFailed, Race, say
from peer_race.materials import Materials, prepare
from peer_race.report import figures_of, print_contests
from peer_race.workload import SCENARIOS

QUICK = ("a", "a_lora", "b", "d")
INSTALL = Path(__file__).parents[1] / "var" / "peers"


def main() -> int:
    options = parse()
    materials = prepare(options.model_dir, options.install)
    logs = options.install / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    names = options.scenario or (QUICK if options.quick else [scenario.name for scenario in SCENARIOS])
    race = Race(materials, [s for s in SCENARIOS if s.name in names], options.threads, logs, options.quick)
    missing = who_misses(materials, options.peer)
    contests: list[Contest] = []
    failure = ""
    engine = race.start(OURS, ours(materials, options.threads))
    try:
        for contest in race.run([peer for peer in PEERS if peer.name not in missing], engine):
            contests.append(contest)
    except OursFailed as error:
        failure = f"{OURS} failed: {error}"
        say(failure)
    finally:
        engine.close()
    contests.sort(key=lambda contest: SCENARIOS.index(contest.scenario))
    judge_all(contests, judge(materials, options.threads), materials.adapters)
    print_contests(contests, engine.version)
    figures = figures_of(contests, missing, engine.version, quick=options.quick)
    figures += [Figure(failure, 1, "", "0", False)] if failure else []
    present("Against peers", figures, options.json)
    return 1 if failure else 0


def who_misses(materials: Materials, wanted: Sequence[str] | None) -> dict[str, str]:
    """The peers that take no part, each with the reason."""
    missing = {peer.name: f"absent (make {peer.target})" for peer in PEERS if not peer.installed(materials)}
    for name, reason in missing.items():
        say(f"{name}: {reason}")
    return missing | {peer.name: "not asked" for peer in PEERS if wanted and peer.name not in wanted}


def parse() -> argparse.Namespace:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("model_dir", type=Path)
    parser.add_argument("--install", type=Path, default=INSTALL, help="where `make peers` installed them")
    parser.add_argument("--threads", type=int, default=2, help="of every engine")
    parser.add_argument("--scenario", action="append", choices=[scenario.name for scenario in SCENARIOS])
    parser.add_argument("--peer", action="append", choices=[peer.name for peer in PEERS])
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
