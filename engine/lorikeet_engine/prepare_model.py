"""`python -m lorikeet_engine.prepare_model MODEL MODELS_DIR`: make the model a local directory and print its path.

A process of its own because a conversion needs torch and a gigabyte for half a minute, and its caller neither. The
directory is the last line of standard output; a refusal is one line on standard error and exit status 1.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from huggingface_hub.utils.tqdm import disable_progress_bars

from lorikeet_engine.errors import UnsupportedModel
from lorikeet_engine.models.package import resolve_model


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m lorikeet_engine.prepare_model", description=__doc__)
    parser.add_argument("model", help="a local directory, package:NAME, or a hub id org/name")
    parser.add_argument("models_dir", type=Path, help="where converted models are kept")
    options = parser.parse_args(arguments)
    disable_progress_bars()
    try:
        directory = resolve_model(options.model, options.models_dir)
    except UnsupportedModel as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    sys.stdout.write(f"{directory}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
