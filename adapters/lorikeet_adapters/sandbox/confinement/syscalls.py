"""Numbers of system calls on the machines we run on; a call that a machine does not have is absent from its table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Machine:
    """How the kernel names a machine, and its calls.

    Attributes:
        audit_arch: what a filter sees as the architecture of a call.
        numbers: by name.
        foreign: the first number of another calling convention under the same architecture, where there is one.
    """

    audit_arch: int
    numbers: Mapping[str, int]
    foreign: int | None = None


# x86-64's number first, then that of aarch64; -1 where there is none.
_NUMBERS: Final[Mapping[str, tuple[int, int]]] = {
    "add_key": (248, 217),
    "bpf": (321, 280),
    "brk": (12, 214),
    "chmod": (90, -1),
    "chown": (92, -1),
    "clock_getres": (229, 114),
    "clock_gettime": (228, 113),
    "clock_nanosleep": (230, 115),
    "clone": (56, 220),
    "clone3": (435, 435),
    "close": (3, 57),
    "creat": (85, -1),
    "execve": (59, 221),
    "execveat": (322, 281),
    "exit": (60, 93),
    "exit_group": (231, 94),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "fork": (57, -1),
    "fsetxattr": (190, 7),
    "fstat": (5, 80),
    "futex": (202, 98),
    "getpid": (39, 172),
    "getrandom": (318, 278),
    "getrusage": (98, 165),
    "gettid": (186, 178),
    "gettimeofday": (96, 169),
    "io_uring_setup": (425, 425),
    "keyctl": (250, 219),
    "kill": (62, 129),
    "lchown": (94, -1),
    "link": (86, -1),
    "linkat": (265, 37),
    "lseek": (8, 62),
    "lsetxattr": (189, 6),
    "madvise": (28, 233),
    "memfd_create": (319, 279),
    "mkdir": (83, -1),
    "mkdirat": (258, 34),
    "mknod": (133, -1),
    "mknodat": (259, 33),
    "mmap": (9, 222),
    "mount": (165, 40),
    "mprotect": (10, 226),
    "mremap": (25, 216),
    "munmap": (11, 215),
    "nanosleep": (35, 101),
    "newfstatat": (262, 79),
    "open": (2, -1),
    "open_by_handle_at": (304, 265),
    "openat": (257, 56),
    "openat2": (437, 437),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pread64": (17, 67),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "read": (0, 63),
    "readv": (19, 65),
    "rename": (82, -1),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "request_key": (249, 218),
    "restart_syscall": (219, 128),
    "rmdir": (84, -1),
    "rseq": (334, 293),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "rt_sigqueueinfo": (129, 138),
    "sched_getaffinity": (204, 123),
    "sched_yield": (24, 124),
    "setitimer": (38, 103),
    "setns": (308, 268),
    "setxattr": (188, 5),
    "sigaltstack": (131, 132),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "symlink": (88, -1),
    "symlinkat": (266, 36),
    "tkill": (200, 130),
    "truncate": (76, 45),
    "unlink": (87, -1),
    "unlinkat": (263, 35),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "utimensat": (280, 88),
    "vfork": (58, -1),
    "write": (1, 64),
    "writev": (20, 66),
}
_X32: Final = 0x4000_0000  # x86-64's 32-bit convention has the same architecture and this bit in every number

MACHINES: Final[Mapping[str, Machine]] = {
    "x86_64": Machine(0xC000_003E, {name: pair[0] for name, pair in _NUMBERS.items()}, _X32),
    "aarch64": Machine(0xC000_00B7, {name: pair[1] for name, pair in _NUMBERS.items() if pair[1] >= 0}),
}
NAMES: Final = frozenset(_NUMBERS)
