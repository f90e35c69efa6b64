"""How much a jailed child may use, and the moment at which it gives up everything else."""

from __future__ import annotations

import resource
import sys
from dataclasses import dataclass

from lorikeet_adapters.sandbox.confinement.seccomp import LOCKED_IN, install


@dataclass(frozen=True, slots=True)
class JailLimits:
    """
    Attributes:
        memory_bytes: of address space.
        cpu_s: of computing, the start of the interpreter included.
        wall_s: from start to end; the parent's clock.
        open_files: the child opens none below this number; it may hold higher ones that it was given.
        answer_bytes: of JSON.
    """

    memory_bytes: int = 1536 << 20
    cpu_s: int = 120
    wall_s: float = 300.0
    open_files: int = 16
    answer_bytes: int = 64 << 10


def confine(limits: JailLimits) -> None:
    """For the rest of this process's life; call it when all that will be needed is imported.

    Away from Linux there are the resource limits only.

    Raises:
        NoFilter: this kernel cannot keep the process in; only the resources are limited.
    """
    for kind, value in (
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_CORE, 0),
    ):
        set_limit(kind, value, value)
    # The signal at the soft limit ends the process and says why; the hard one is for a process that ignores it.
    set_limit(resource.RLIMIT_CPU, limits.cpu_s, limits.cpu_s + 1)
    if sys.platform.startswith("linux"):
        install(LOCKED_IN)


def set_limit(kind: int, soft: int, hard: int) -> None:
    """One resource limit, or the one that this process already has if that is lower."""
    ceiling = resource.getrlimit(kind)[1]
    if ceiling != resource.RLIM_INFINITY:
        soft, hard = min(soft, ceiling), min(hard, ceiling)
    resource.setrlimit(kind, (soft, hard))
