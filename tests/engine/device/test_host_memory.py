"""Memory that a step lets go of stays with the process."""

from __future__ import annotations

import os
import subprocess
import sys

PROBE = """
import ctypes, resource
from lorikeet_engine.execution.machine.host_memory import keep_freed_activations
library = ctypes.CDLL(None)
library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        pieces = [library.malloc(8 << 20) for _ in range(6)]
        for piece in pieces:
            ctypes.memset(piece, 1, 8 << 20)
        for piece in pieces:
            library.free(piece)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
keep_freed_activations()
faults()
print(faults())
"""


def test_large_memory_is_not_faulted_in_anew_for_every_step() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, env=environment, check=True)
    assert int(done.stdout) < 100, "20 rounds of 12,288 pages"
