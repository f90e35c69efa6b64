"""`python -m lorikeet_engine.certification MODEL_DIR NAME MAX_RANK MEMORY_BYTES`: the child that `process` starts.

Once its libraries are imported it gives up network, other programs and writing: what it then reads was uploaded by a
stranger, even if the validator has been over it.
"""

from __future__ import annotations

import json
import os
import resource
import select
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from lorikeet_adapters.errors import AdapterError, AdapterRejected
from lorikeet_adapters.sandbox.confinement.limits import set_limit
from lorikeet_adapters.sandbox.confinement.seccomp import CUT_OFF, NoFilter, install
from lorikeet_engine.certification.measuring import Measurer
from lorikeet_engine.errors import UnsupportedModel

IDLE_S = 60.0
NICENESS = 10  # whoever is being served comes first
MAX_THREADS = 4  # the more threads meet at every matrix, the longer they wait for one that has no core
READ_BYTES = 1 << 16


def main(arguments: list[str]) -> None:
    model_dir, name, max_rank, memory_bytes = arguments
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # libraries print; the answers are ours
    os.nice(NICENESS)
    torch.set_num_threads(max(1, min(MAX_THREADS, len(os.sched_getaffinity(0)) // 2)))
    unconfined = _confine(int(memory_bytes))
    measurer: Measurer | None = None
    for request in _requests():
        try:
            if unconfined is not None:
                raise unconfined
            if measurer is None:
                measurer = Measurer(Path(model_dir), name, max_rank=int(max_rank), memory_bytes=int(memory_bytes))
            answer = _answer(measurer, request)
        except (NoFilter, UnsupportedModel, OSError, MemoryError, RuntimeError) as error:
            answer = {"failed": f"no adapter can be measured here: {type(error).__name__}: {error}"}
        os.write(answers, json.dumps(answer).encode() + b"\n")
        if "failed" in answer:
            return  # what is left of the model may not be what it was


def _confine(memory_bytes: int) -> NoFilter | None:
    """Why it cannot be done here, None when it is done."""
    set_limit(resource.RLIMIT_DATA, memory_bytes, memory_bytes)
    for kind in (resource.RLIMIT_FSIZE, resource.RLIMIT_CORE):
        set_limit(kind, 0, 0)
    try:
        if sys.platform.startswith("linux"):
            install(CUT_OFF)
    except NoFilter as error:
        return error
    return None


def _answer(measurer: Measurer, request: Mapping[str, Any]) -> dict[str, object]:
    try:
        measured = measurer.measure(
            folder=Path(request["folder"]),
            image=Path(request["image"]),
            digest=request["digest"],
            serving_dtype=request["serving_dtype"],
        )
    except AdapterRejected as rejected:
        return {"rejected": {"code": rejected.code, "message": rejected.message, "param": rejected.param}}
    except AdapterError as error:
        return {"failed": error.message}
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"}
    return {"measured": measured.as_record()}


def _requests() -> Iterator[dict[str, Any]]:
    """Until the parent closes the pipe, or none has come for a while."""
    data = b""
    while select.select([sys.stdin], [], [], IDLE_S)[0]:
        piece = os.read(sys.stdin.fileno(), READ_BYTES)
        if not piece:
            return
        data += piece
        if data.endswith(b"\n"):
            yield json.loads(data)
            data = b""


if __name__ == "__main__":
    main(sys.argv[1:])
