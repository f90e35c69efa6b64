"""The engine process: `python -m lorikeet_engine --config FILE.json`.

Prints the memory table, serves until SIGTERM or SIGINT, then gives the socket back. It takes no request away: the
gateway in front drains before it stops the engine.
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

from prometheus_client import CollectorRegistry

from lorikeet_engine.build import Engine, build_engine, new_instance_id
from lorikeet_engine.config import EngineConfig, read_config
from lorikeet_engine.errors import EngineError
from lorikeet_engine.health import HealthServer
from lorikeet_engine.metrics import EngineCollector
from lorikeet_engine.protocol import EngineInfo
from lorikeet_engine.server import EngineServer
from lorikeet_engine.socket_keys import keys_for

STANDSTILL_S = 120.0  # a loop that has not turned for so long is dead; no step takes a tenth of it

log = logging.getLogger("lorikeet_engine")


def main() -> int:
    parser = argparse.ArgumentParser(prog="lorikeet_engine", description="Serve one model replica.")
    parser.add_argument("--config", type=Path, required=True, help="JSON file with the fields of EngineConfig")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s engine %(levelname)s %(message)s", stream=sys.stderr)
    try:
        config = read_config(json.loads(parser.parse_args().config.read_text()))
        keys = keys_for(config.endpoint, config.socket_key_file)
        engine = build_engine(config)
    except (EngineError, ValueError, OSError) as error:
        sys.stderr.write(f"engine: {error}\n")
        return 2
    server = EngineServer(loop=engine.loop, info=_info(config, engine), endpoint=config.endpoint, keys=keys)
    registry = CollectorRegistry()
    EngineCollector(lambda: server.published, registry)
    health = HealthServer(
        host=config.health_host,
        port=config.health_port,
        registry=registry,
        is_live=lambda: time.monotonic() - server.last_turn_s < STANDSTILL_S,
        is_ready=lambda: not server.stopping,
    )

    def stop(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001 (the signal module's signature)
        server.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    for line in engine.budget.table().splitlines():
        log.info(line)
    health.start()
    log.info("serving %s in %s on %s", config.model_name, engine.dtype, config.endpoint)
    server.run()
    health.stop()
    engine.close()
    return 0


def _info(config: EngineConfig, engine: Engine) -> EngineInfo:
    return EngineInfo(
        instance_id=new_instance_id(),
        model_name=config.model_name,
        model_digest=engine.model_digest,
        device=config.device,
        dtype=engine.dtype,
        max_model_len=engine.budget.max_model_len,
        block_size=config.block_size,
        vocab=engine.spec.vocab,
    )


if __name__ == "__main__":
    sys.exit(main())
