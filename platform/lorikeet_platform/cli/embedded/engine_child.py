"""The engine as a child process: its configuration from our settings, and the command that starts it."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

from lorikeet_platform.settings import Settings


def write_engine_config(settings: Settings, *, model_dir: Path, endpoint: str, path: Path) -> list[str]:
    """Write the engine's configuration to `path`; returns the command that starts it."""
    config = settings.engine.model_dump(mode="json") | {
        "model_dir": str(model_dir),
        "model_name": settings.model_name,
        "store_url": settings.store_address.url,
        "store_endpoint": settings.store_address.endpoint,
        "store_region": settings.store_address.region,
        "store_allow_http": settings.store_address.allow_http,
        "endpoint": endpoint,
        "socket_key_file": str(settings.engine_key_file) if settings.engine_key_file else None,
        "max_rank": settings.max_rank,
        "outbox_dir": str(settings.outbox_dir.resolve()),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(config, indent=1), encoding="utf-8")
    return [sys.executable, "-m", "lorikeet_engine", "--config", str(path)]


def profiling(n_steps: int, folder: Path) -> list[str]:
    """What to add to the engine's command so that it leaves a timeline in `folder`, named after the time."""
    name = f"timeline-{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
    return ["--profile", str(n_steps), str(folder / name)]
