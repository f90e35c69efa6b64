"""From a pickled adapter to safetensors, on the machine of whoever has the pickle; servers never open one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

from lorikeet_adapters.errors import AdapterRejected, quoted
from lorikeet_adapters.files import CONFIG_FILE, WEIGHTS_FILE
from lorikeet_adapters.header import MAX_FILE_BYTES, MAX_HEADER_BYTES
from lorikeet_adapters.sandbox.confinement.limits import JailLimits
from lorikeet_adapters.sandbox.jail import Inmate, JailBroken, run_jailed

PICKLES: Final = ("adapter_model.bin", "adapter_model.pt")
# Address space: torch's libraries alone are mapped with some gigabytes, and the tensors are held twice.
LIMITS: Final = JailLimits(memory_bytes=24 << 30)
UNPICKLER: Final = ("-m", "lorikeet_adapters.sandbox.unpickler")


def convert_pickle(folder: Path, out: Path, *, limits: JailLimits = LIMITS) -> int:
    """Write the adapter of `folder` to the new directory `out` with its weights as safetensors; the number of tensors.

    Raises:
        AdapterRejected: there is no pickle, or it holds something else than tensors.
        FileExistsError: `out` is there already.
        JailBroken: the file brought the reader down.
        JailUnavailable: this machine cannot confine a reader.
    """
    pickle, config = _find(folder), folder / CONFIG_FILE
    inmate = Inmate(program=UNPICKLER, arguments={}, files={pickle.name: pickle})
    out.mkdir()
    try:
        outcome = run_jailed(
            inmate, out=out / WEIGHTS_FILE, max_out_bytes=MAX_FILE_BYTES + MAX_HEADER_BYTES, limits=limits
        )
        count = outcome.done.get("n_tensors") if isinstance(outcome.done, dict) else None
        if type(count) is not int:
            raise JailBroken(f"its answer is none: {quoted(json.dumps(outcome.done))}")
        shutil.copyfile(config, out / CONFIG_FILE)
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)
        raise
    return count


def _find(folder: Path) -> Path:
    found = [folder / name for name in PICKLES if (folder / name).is_file()]
    missing: Any = None
    if len(found) != 1:
        missing = (PICKLES[0], "no such file" if not found else "two pickles", f"one of {' and '.join(PICKLES)}")
    elif not (folder / CONFIG_FILE).is_file():
        missing = (CONFIG_FILE, "no such file", "the file PEFT writes beside the weights")
    if missing is not None:
        subject, what, allowed = missing
        raise AdapterRejected("invalid_file_set", subject=subject, found=what, allowed=allowed)
    return found[0]
