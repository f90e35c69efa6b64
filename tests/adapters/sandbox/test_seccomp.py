"""The filter's instructions, read as the kernel reads them, for both machines; only one of them runs here."""

from __future__ import annotations

import errno
import struct

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


@pytest.mark.parametrize("policy", [LOCKED_IN, CUT_OFF], ids=["locked in", "cut off"])
def test_every_rule_names_a_call_that_is_known(policy: Policy) -> None:
    assert {rule.call for rule in policy.rules} <= NAMES


@pytest.mark.parametrize("machine", [X86, ARM], ids=["x86_64", "aarch64"])
def test_no_two_calls_have_one_number(machine: Machine) -> None:
    assert len(set(machine.numbers.values())) == len(machine.numbers)
