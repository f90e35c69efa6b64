"""A filter between this process and the kernel: which system calls still work.

Two policies. `LOCKED_IN` lists what is allowed, for a process that has everything it needs: it computes on memory and
on descriptors it holds. Whatever is not in the list fails as not permitted, so a library that tries something harmless
and does without it goes on. `CUT_OFF` lists what is forbidden, for a process that must still load libraries and start
threads: no network, no other programs, no way to signal, slow down or limit another process, no memory or messages
shared with one, no changes to files. A list of what is forbidden is weaker; it keeps out what the list's author thought
of. And it lets files be read: a process of the same user, and above all of root, can read what /proc says of the one
that started it. Nothing read can leave but with the answer, which the parent checks.

Needs no privileges. A filter cannot be taken off again, and covers all threads and whatever comes of them.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from lorikeet_adapters.sandbox.confinement.syscalls import MACHINES, Machine

ALLOW: Final = 0x7FFF_0000
KILL: Final = 0x8000_0000
NOT_PERMITTED: Final = 0x0005_0000 | errno.EPERM
NO_SUCH_CALL: Final = 0x0005_0000 | errno.ENOSYS

_LOAD_WORD, _JUMP_IF_EQUAL, _JUMP_IF_AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_PR_SET_NO_NEW_PRIVS: Final = 38
_SECCOMP: Final = {"x86_64": 317, "aarch64": 277}
_SET_MODE_FILTER, _ALL_THREADS = 1, 1
_MAX_INSTRUCTIONS: Final = 4096

OWN_PROCESS: Final = -1  # in a rule, the number that this process has when it puts itself behind the filter
_AT_EMPTY_PATH: Final = 0x1000
_PROT_EXEC: Final = 0x4
_CLONE_THREAD: Final = 0x1_0000
# Signals for whoever owns a descriptor, who need not be this process, and bytes for whoever reads a terminal.
_OWNING: Final = (8, 10, 15)  # F_SETOWN, F_SETSIG, F_SETOWN_EX
_OWNING_DEVICES: Final = (0x8901, 0x8902, 0x5412)  # FIOSETOWN, SIOCSPGRP, TIOCSTI


class NoFilter(Exception):
    """This kernel or machine has no filter for us; the message says which part is missing."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What becomes of one call, or of the call when the low 32 bits of an argument, masked, are `equals`.

    Of a process number, a descriptor's command and flags, the kernel reads no more than those.
    """

    call: str
    action: int
    argument: int | None = None
    mask: int = 0xFFFF_FFFF
    equals: int = 0


@dataclass(frozen=True, slots=True)
class Policy:
    """The first rule that applies decides, and `otherwise` when none does."""

    rules: tuple[Rule, ...]
    otherwise: int


def _each(action: int, calls: str) -> Iterable[Rule]:
    return (Rule(call, action) for call in calls.split())


LOCKED_IN: Final = Policy(
    (
        *_each(ALLOW, "read write readv writev pread64 lseek fstat close"),
        Rule("newfstatat", ALLOW, argument=3, mask=_AT_EMPTY_PATH, equals=_AT_EMPTY_PATH),  # fstat of newer C libraries
        Rule("mmap", ALLOW, argument=2, mask=_PROT_EXEC),
        Rule("mprotect", ALLOW, argument=2, mask=_PROT_EXEC),
        *_each(ALLOW, "brk munmap mremap madvise futex rseq sched_yield sched_getaffinity"),
        *_each(ALLOW, "clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday getrandom getrusage"),
        *_each(ALLOW, "rt_sigaction rt_sigprocmask rt_sigreturn restart_syscall sigaltstack setitimer"),
        *_each(ALLOW, "getpid gettid exit exit_group"),
        Rule("clone3", NO_SUCH_CALL),
    ),
    NOT_PERMITTED,
)

CUT_OFF: Final = Policy(
    (
        *_each(NOT_PERMITTED, "socket socketpair io_uring_setup"),
        *_each(NOT_PERMITTED, "execve execveat fork vfork ptrace process_vm_readv process_vm_writev"),
        *_each(NOT_PERMITTED, "process_madvise process_mrelease kcmp migrate_pages move_pages"),
        Rule("clone", NOT_PERMITTED, argument=0, mask=_CLONE_THREAD),
        Rule("clone3", NO_SUCH_CALL),  # its flags lie in memory, where no filter looks; libraries then use clone
        Rule("tgkill", ALLOW, argument=0, equals=OWN_PROCESS),  # with which a process aborts, and threads are ended
        *_each(NOT_PERMITTED, "tgkill kill tkill rt_sigqueueinfo rt_tgsigqueueinfo"),
        *_each(NOT_PERMITTED, "pidfd_open pidfd_getfd pidfd_send_signal"),
        *(Rule("fcntl", NOT_PERMITTED, argument=1, equals=command) for command in _OWNING),
        *(Rule("ioctl", NOT_PERMITTED, argument=1, equals=command) for command in _OWNING_DEVICES),
        # 0 is this process
        Rule("prlimit64", ALLOW, argument=0, equals=0),
        Rule("sched_setaffinity", ALLOW, argument=0, equals=0),
        *_each(NOT_PERMITTED, "prlimit64 sched_setaffinity sched_setscheduler sched_setparam sched_setattr"),
        *_each(NOT_PERMITTED, "setpriority ioprio_set"),
        *_each(NOT_PERMITTED, "shmget shmat shmctl msgget msgsnd msgrcv msgctl mq_open mq_unlink"),
        *_each(NOT_PERMITTED, "semget semop semtimedop semctl"),
        Rule("open", ALLOW, argument=1, mask=os.O_ACCMODE | os.O_CREAT | os.O_TRUNC),
        Rule("open", NOT_PERMITTED),
        Rule("openat", ALLOW, argument=2, mask=os.O_ACCMODE | os.O_CREAT | os.O_TRUNC),
        Rule("openat", NOT_PERMITTED),
        Rule("openat2", NO_SUCH_CALL),
        *_each(NOT_PERMITTED, "creat truncate rename renameat renameat2 unlink unlinkat rmdir mkdir mkdirat"),
        *_each(NOT_PERMITTED, "link linkat symlink symlinkat mknod mknodat chmod fchmod fchmodat fchmodat2"),
        *_each(NOT_PERMITTED, "chown fchown lchown fchownat utimensat utime utimes futimesat"),
        *_each(NOT_PERMITTED, "setxattr lsetxattr fsetxattr setxattrat"),
        *_each(NOT_PERMITTED, "removexattr lremovexattr fremovexattr removexattrat"),
        *_each(NOT_PERMITTED, "memfd_create open_by_handle_at mount umount2 pivot_root chroot unshare setns"),
        *_each(NOT_PERMITTED, "bpf perf_event_open userfaultfd"),
        *_each(NOT_PERMITTED, "keyctl add_key request_key"),
    ),
    ALLOW,
)


def program(policy: Policy, machine: Machine) -> bytes:
    """The policy for this process as the kernel's instructions, 8 bytes each."""
    code = [
        _instruction(_LOAD_WORD, _ARCHITECTURE_AT),
        _instruction(_JUMP_IF_EQUAL, machine.audit_arch, 1, 0),
        _instruction(_RETURN, KILL),
        _instruction(_LOAD_WORD, _NUMBER_AT),
    ]
    if machine.foreign is not None:
        code += [_instruction(_JUMP_IF_AT_LEAST, machine.foreign, 0, 1), _instruction(_RETURN, KILL)]
    for rule in policy.rules:
        if rule.call in machine.numbers:
            code += _decision(rule, machine.numbers[rule.call])
    code.append(_instruction(_RETURN, policy.otherwise))
    return b"".join(code)


def _decision(rule: Rule, number: int) -> Sequence[bytes]:
    if rule.argument is None:
        return [_instruction(_JUMP_IF_EQUAL, number, 0, 1), _instruction(_RETURN, rule.action)]
    return [
        _instruction(_JUMP_IF_EQUAL, number, 0, 5),
        _instruction(_LOAD_WORD, _ARGUMENTS_AT + 8 * rule.argument),  # both machines store the low half first
        _instruction(_AND, rule.mask),
        _instruction(_JUMP_IF_EQUAL, os.getpid() if rule.equals == OWN_PROCESS else rule.equals, 0, 1),
        _instruction(_RETURN, rule.action),
        _instruction(_LOAD_WORD, _NUMBER_AT),
    ]


def _instruction(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, operand)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def install(policy: Policy) -> None:
    """Put this process, with all its threads, behind the policy for the rest of its life.

    Raises:
        NoFilter: it runs as it did before.
    """
    name = platform.machine()
    machine = MACHINES.get(name)
    if not sys.platform.startswith("linux") or machine is None:
        raise NoFilter(f"system calls can be filtered on Linux on {' and '.join(MACHINES)} only, not on {name}")
    code = program(policy, machine)
    assert len(code) <= 8 * _MAX_INSTRUCTIONS
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)):
        raise NoFilter(f"the kernel does not let this process give up privileges: {os.strerror(ctypes.get_errno())}")
    argument = _Program(len(code) // 8, code)
    call = ctypes.c_long(_SECCOMP[name])
    result = libc.syscall(call, ctypes.c_ulong(_SET_MODE_FILTER), ctypes.c_ulong(_ALL_THREADS), ctypes.byref(argument))
    if result:
        reason = os.strerror(ctypes.get_errno()) if result < 0 else f"thread {result} has another one"
        raise NoFilter(f"the kernel takes no filter of system calls (seccomp): {reason}")
