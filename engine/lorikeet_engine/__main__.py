"""The engine process: `python -m lorikeet_engine --config FILE.json [--profile N TRACE.json]`.

Prints the memory table and serves until SIGTERM or SIGINT; then it takes no more requests, ends those it has, and goes.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import time
from pathlib import Path
from types import FrameType

import zmq

from lorikeet_engine.build import Engine, build_engine
from lorikeet_engine.config import EngineConfig, read_config
from lorikeet_engine.cost import DeviceProfile
from lorikeet_engine.design import describe
from lorikeet_engine.errors import EngineError
from lorikeet_engine.health import HealthServer
from lorikeet_engine.metrics import families, process, render
from lorikeet_engine.outbox.journal import Journal
from lorikeet_engine.profiling.step_timeline import MAX_STEPS, StepTimeline
from lorikeet_engine.profiling.timeline import NOT_PROFILED
from lorikeet_engine.protocol import STANDSTILL_S, EngineInfo
from lorikeet_engine.server import EngineServer
from lorikeet_engine.socket_keys import keys_for
from lorikeet_engine.stats import EngineDesign

log = logging.getLogger("lorikeet_engine")


def main() -> int:
    parser = argparse.ArgumentParser(prog="lorikeet_engine", description="Serve one model replica.")
    parser.add_argument("--config", type=Path, required=True, help="JSON file with the fields of EngineConfig")
    parser.add_argument("--profile", nargs=2, metavar=("N", "FILE"), help="write the timeline of N steps to FILE")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s engine %(levelname)s %(message)s", stream=sys.stderr)
    try:
        arguments = parser.parse_args()
        config = read_config(json.loads(arguments.config.read_text()))
        keys = keys_for(config.endpoint, config.socket_key_file)
        timeline = _timeline(*arguments.profile) if arguments.profile else None
        journal = Journal(config.outbox_dir) if config.outbox_dir else None
        engine = build_engine(config, timeline=timeline)
        server = EngineServer(
            loop=engine.loop,
            info=_info(config, engine),
            design=_design(engine),
            endpoint=config.endpoint,
            keys=keys,
            journal=journal,
            timeline=timeline or NOT_PROFILED,
        )
        health = _health_server(config, server, engine.profile)
    except zmq.ZMQError as error:
        sys.stderr.write(f"engine: endpoint {config.endpoint}: {error}\n")
        return 2
    except (EngineError, ValueError, OSError) as error:
        sys.stderr.write(f"engine: {error}\n")
        return 2

    def stop(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001 (the signal module's signature)
        server.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    for line in engine.budget.table().splitlines():
        log.info(line)
    if timeline:
        timeline.about |= {"model": config.model_name, "device": engine.config.device, "dtype": engine.dtype}
    health.start()
    log.info("serving %s in %s on %s", config.model_name, engine.dtype, config.endpoint)
    server.run()
    if timeline:
        timeline.close()
    health.stop()
    engine.close()
    return 0


def _timeline(n_steps: str, file: str) -> StepTimeline:
    if not (n_steps.isdecimal() and 1 <= int(n_steps) <= MAX_STEPS):
        raise ValueError(f"--profile: {n_steps!r} is not a number of steps from 1 to {MAX_STEPS}")
    path = Path(file)
    path.touch()  # fails now rather than after the steps
    return StepTimeline(path, n_steps=int(n_steps))


def _health_server(config: EngineConfig, server: EngineServer, device: DeviceProfile) -> HealthServer:
    def turn_age_s() -> float:
        return time.monotonic() - server.last_turn_s

    return HealthServer(
        host=config.health_host,
        port=config.health_port,
        metrics=lambda: render((*families(server.published), *process(device, turn_age_s=turn_age_s()))),
        is_live=lambda: turn_age_s() < STANDSTILL_S,
        is_ready=lambda: not server.stopping,
    )


def _info(config: EngineConfig, engine: Engine) -> EngineInfo:
    return EngineInfo(
        model_name=config.model_name,
        model_digest=engine.model_digest,
        device=engine.config.device,
        dtype=engine.dtype,
        max_model_len=engine.budget.max_model_len,
        block_size=engine.config.block_size,
        vocab=engine.spec.vocab,
    )


def _design(engine: Engine) -> EngineDesign:
    return describe(
        engine.config,
        engine.budget,
        dtype=engine.dtype,
        itemsize=engine.itemsize,
        model=engine.spec,
        cost=engine.cost,
        device=engine.profile,
    )


if __name__ == "__main__":
    sys.exit(main())
