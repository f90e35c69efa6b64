"""The filter's instructions, read as the kernel reads them, for both machines; only one of them runs here."""

from __future__ import annotations

import errno
import os
import signal
import struct
import subprocess
import sys
import time

import pytest

from lorikeet_adapters.sandbox.confinement.seccomp import ALLOW, CUT_OFF, KILL, LOCKED_IN, Policy, program
from lorikeet_adapters.sandbox.confinement.syscalls import MACHINES, NAMES, Machine

DENIED = 0x50000 | errno.EPERM
X86, ARM = MACHINES["x86_64"], MACHINES["aarch64"]


def decide(policy: Policy, machine: Machine, number: int, *arguments: int, arch: int | None = None) -> int:
    """What the filter says of one call."""
    data = struct.pack("<IIQ6Q", number, machine.audit_arch if arch is None else arch, 0, *(*arguments, *[0] * 6)[:6])
    code = list(struct.iter_unpack("<HBBI", program(policy, machine)))
    position = accumulator = 0
    while True:
        operation, if_true, if_false, operand = code[position]
        position += 1
        match operation:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, operand)
            case 0x54:
                accumulator &= operand
            case 0x15:
                position += if_true if accumulator == operand else if_false
            case 0x35:
                position += if_true if accumulator >= operand else if_false
            case 0x06:
                return int(operand)
            case _:
                raise AssertionError(f"instruction {operation:#x}")


@pytest.mark.parametrize("machine", [X86, ARM], ids=["x86_64", "aarch64"])
@pytest.mark.parametrize("policy", [LOCKED_IN, CUT_OFF], ids=["locked in", "cut off"])
def test_another_architecture_is_killed_and_the_networks_calls_fail(policy: Policy, machine: Machine) -> None:
    assert decide(policy, machine, machine.numbers["read"], arch=0x40000003) == KILL
    for call in ("socket", "execve", "execveat", "ptrace", "io_uring_setup", "unlinkat", "kill", "bpf"):
        assert decide(policy, machine, machine.numbers[call]) == DENIED, call
    for call in ("read", "write", "futex", "exit_group", "munmap"):
        assert decide(policy, machine, machine.numbers[call]) == ALLOW, call


@pytest.mark.parametrize("policy", [LOCKED_IN, CUT_OFF], ids=["locked in", "cut off"])
def test_the_32_bit_numbers_of_x86_64_are_killed(policy: Policy) -> None:
    assert decide(policy, X86, 0x40000000 | X86.numbers["read"]) == KILL


@pytest.mark.parametrize("machine", [X86, ARM], ids=["x86_64", "aarch64"])
def test_what_an_argument_decides(machine: Machine) -> None:
    numbers = machine.numbers
    assert decide(LOCKED_IN, machine, numbers["mmap"], 0, 4096, 3) == ALLOW
    assert decide(LOCKED_IN, machine, numbers["mmap"], 0, 4096, 7) == DENIED
    assert decide(LOCKED_IN, machine, numbers["openat"], 0, 0, 0) == DENIED
    assert decide(CUT_OFF, machine, numbers["openat"], 0, 0, 0o2000000) == ALLOW
    for flags in (1, 2, 0o100, 0o101, 0o1000):
        assert decide(CUT_OFF, machine, numbers["openat"], 0, 0, flags) == DENIED, oct(flags)
    assert decide(CUT_OFF, machine, numbers["clone"], 0x10F00) == ALLOW
    assert decide(CUT_OFF, machine, numbers["clone"], 17) == DENIED
    assert decide(CUT_OFF, machine, numbers["clone3"]) == 0x50000 | errno.ENOSYS


OTHER = os.getpid() + 1
# Calls with their first arguments: those that reach another process, leave something behind or let something out.
MUST_BE_REFUSED: list[tuple[str, tuple[int, ...]]] = [
    ("socket socketpair io_uring_setup execve execveat fork vfork ptrace", ()),
    ("kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo", (OTHER, 9)),
    ("pidfd_open pidfd_getfd pidfd_send_signal process_madvise process_mrelease", (OTHER,)),
    ("process_vm_readv process_vm_writev kcmp migrate_pages move_pages", (OTHER,)),
    ("prlimit64 sched_setaffinity sched_setscheduler sched_setparam", (OTHER,)),
    ("setpriority ioprio_set sched_setattr", (0, OTHER)),
    ("shmget shmat shmctl msgget msgsnd msgrcv msgctl semget semop semtimedop semctl", ()),
    ("mq_open mq_unlink memfd_create bpf perf_event_open userfaultfd keyctl", ()),
    ("truncate renameat renameat2 unlinkat mkdirat linkat symlinkat mknodat", ()),
    ("fchmod fchmodat fchmodat2 fchown fchownat utimensat utime utimes futimesat", ()),
    ("setxattr lsetxattr fsetxattr setxattrat", ()),
    ("removexattr lremovexattr fremovexattr removexattrat", ()),
    ("mount umount2 pivot_root chroot unshare setns open_by_handle_at", ()),
    ("kill tkill", (os.getpid(), 9)),
    *(("fcntl", (0, command)) for command in (8, 10, 15)),
    *(("ioctl", (0, command)) for command in (0x8901, 0x8902, 0x5412)),
]
MUST_WORK = [
    ("tgkill", (os.getpid(), 1, 6)),
    ("prlimit64", (0, 7)),
    ("sched_setaffinity", (0,)),
    ("fcntl", (0, 1)),
    ("ioctl", (0, 0x5401)),
]


@pytest.mark.parametrize("machine", [X86, ARM], ids=["x86_64", "aarch64"])
def test_n27_what_a_process_that_is_cut_off_must_not_do(machine: Machine) -> None:
    for policy in (CUT_OFF, LOCKED_IN):
        for call, arguments in ((call, given) for calls, given in MUST_BE_REFUSED for call in calls.split()):
            if call in machine.numbers:
                assert decide(policy, machine, machine.numbers[call], *arguments) == DENIED, (call, arguments)
    for call, arguments in MUST_WORK:
        assert decide(CUT_OFF, machine, machine.numbers[call], *arguments) == ALLOW, call


ATTACK = """
import ctypes, errno, fcntl, os, signal
from lorikeet_adapters.sandbox.confinement.seccomp import CUT_OFF, install
from lorikeet_adapters.sandbox.confinement.syscalls import MACHINES
numbers, libc, parent = MACHINES[os.uname().machine].numbers, ctypes.CDLL(None, use_errno=True), os.getppid()
install(CUT_OFF)
attempts = {
    "kill": (parent, 0), "tgkill": (parent, parent, 15), "tkill": (parent, 15), "rt_sigqueueinfo": (parent, 15, 0),
    "rt_tgsigqueueinfo": (parent, parent, 15, 0), "pidfd_open": (parent, 0), "prlimit64": (parent, 1, 0, 0),
    "setpriority": (0, parent, 19), "sched_setaffinity": (parent, 8, 0), "sched_setscheduler": (parent, 3, 0),
    "shmget": (0x1234, 4096, 0o1666), "msgget": (0x1234, 0o1666), "semget": (0x1234, 1, 0o1666),
    "mq_open": (0, 0o102, 0o600, 0), "process_vm_readv": (parent, 0, 0, 0, 0, 0), "fcntl": (0, 8, parent),
    "ptrace": (16, parent, 0, 0), "removexattr": (0, 0), "socket": (2, 1, 0), "fork": (),
}
for name, arguments in attempts.items():
    if name in numbers:
        done = libc.syscall(numbers[name], *(ctypes.c_long(argument) for argument in arguments))
        assert done == -1 and ctypes.get_errno() == errno.EPERM, (name, done, ctypes.get_errno())
signal.signal(signal.SIGABRT, lambda *_: print("reached itself"))
signal.raise_signal(signal.SIGABRT)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="filters of system calls are Linux's")
def test_n27_a_child_that_is_cut_off_cannot_reach_its_parent() -> None:
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        child = subprocess.run([sys.executable, "-c", ATTACK], capture_output=True, text=True, check=False)
        time.sleep(0.05)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (child.returncode, child.stderr, child.stdout) == (0, "", "reached itself\n")
    assert came == []


@pytest.mark.parametrize("policy", [LOCKED_IN, CUT_OFF], ids=["locked in", "cut off"])
def test_every_rule_names_a_call_that_is_known(policy: Policy) -> None:
    assert {rule.call for rule in policy.rules} <= NAMES


@pytest.mark.parametrize("machine", [X86, ARM], ids=["x86_64", "aarch64"])
def test_no_two_calls_have_one_number(machine: Machine) -> None:
    assert len(set(machine.numbers.values())) == len(machine.numbers)
