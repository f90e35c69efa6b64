"""The base model as a local directory; a child process converts or fetches it, once."""

from __future__ import annotations

import sys
from pathlib import Path

from lorikeet_platform.cli.console import CommandFailed, ExitCode
from lorikeet_platform.cli.embedded.children import Child
from lorikeet_platform.settings import Settings

STOP_GRACE_S = 1.0


async def prepared_model(settings: Settings) -> Path:
    """The directory of `settings.model`; raises CommandFailed, the child having said why."""
    given = Path(settings.model)
    if (given / "config.json").is_file() and (given / "tokenizer.json").is_file():
        return given.resolve()
    models_dir = settings.data_dir / "models"
    arguments = [sys.executable, "-m", "lorikeet_engine.prepare_model", settings.model, str(models_dir)]
    child = await Child.start("model preparation", arguments, environment={}, capture=True)
    try:
        status, output = await child.output()
    finally:
        await child.stop(STOP_GRACE_S)
    lines = output.strip().splitlines()
    if status != 0 or not lines:
        raise CommandFailed(ExitCode.FAILED, f"the model {settings.model} cannot be served; see LORIKEET_MODEL")
    return Path(lines[-1])
