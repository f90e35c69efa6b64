"""What a jailed child cannot do, and what its parent makes of a child that tries or breaks (N-27 ff., tenancy 2.4)."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest

from lorikeet_adapters.errors import AdapterRejected
from lorikeet_adapters.sandbox.confinement.limits import JailLimits
from lorikeet_adapters.sandbox.jail import Inmate, JailBroken, JailUnavailable, Outcome, run_jailed

LIMITS = JailLimits(wall_s=30.0)
PROGRAM = """
import ctypes, os, signal, socket, subprocess, sys, threading, time
from lorikeet_adapters.errors import AdapterRejected
from lorikeet_adapters.sandbox.child import run_child
def tried(attempt):
    try:
        attempt()
    except (OSError, RuntimeError, MemoryError) as error:
        return type(error).__name__
    return "done"
def work(task):
{body}
if __name__ == "__main__":
    run_child(work)
"""


def run(
    tmp_path: Path, body: str, *, limits: JailLimits = LIMITS, max_out_bytes: int = 1 << 20, **arguments: object
) -> Outcome:
    program = PROGRAM.format(body="\n".join(f"    {line}" for line in body.splitlines()))
    given = tmp_path / "given"
    given.write_bytes(b"given content")
    inmate = Inmate(program=("-c", program), arguments=arguments, files={"given": given})
    return run_jailed(inmate, out=tmp_path / "out", max_out_bytes=max_out_bytes, limits=limits)


def test_it_reads_what_it_was_given_and_writes_to_its_pipe(tmp_path: Path) -> None:
    outcome = run(
        tmp_path, "task.out.write(b'x' * 300_000)\nreturn {'read': task.files['given'].open().read().decode()}"
    )
    assert outcome == Outcome({"read": "given content"}, hashlib.sha256(b"x" * 300_000).hexdigest())
    assert (tmp_path / "out").read_bytes() == b"x" * 300_000


@pytest.mark.parametrize(
    "attempt",
    [
        "socket.socket()",
        "socket.socketpair()",
        "os.execv('/bin/true', ['true'])",
        "subprocess.run(['/bin/true'])",
        "os.fork()",
        "threading.Thread(target=print).start()",
        "open('/etc/hostname')",
        "open('{other}')",
        "open('made', 'w')",
        "os.mkdir('made')",
        "os.unlink('{other}')",
        "os.rename('{other}', '{other}2')",
        "os.symlink('{other}', 'made')",
        "os.chmod('{other}', 0o777)",
        "os.truncate('{other}', 0)",
        "os.listdir('.')",
        "os.kill(os.getppid(), signal.SIGTERM)",
        "os.memfd_create('x')",
        "os.dup(1)",
    ],
)
def test_n27_it_cannot_reach_anything_else(tmp_path: Path, attempt: str) -> None:
    other = tmp_path / "other"
    other.write_text("untouched")
    tried = attempt.format(other=other)
    outcome = run(tmp_path, f"return {{'tried': tried(lambda: {tried})}}")
    assert isinstance(outcome.done, dict)
    assert outcome.done["tried"] in ("PermissionError", "RuntimeError")
    assert other.read_text() == "untouched"
    assert {path.name for path in tmp_path.iterdir()} == {"given", "other", "out"}


@pytest.mark.parametrize(
    ("call", "arguments"),
    [("ptrace", "101, 0, 0, 0, 0"), ("io_uring_setup", "425, 4, 0"), ("process_vm_readv", "310, 1, 0, 0, 0, 0, 0")],
)
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are those of x86-64")
def test_n27_calls_that_python_does_not_offer_are_closed_too(tmp_path: Path, call: str, arguments: str) -> None:
    body = f"libc = ctypes.CDLL(None, use_errno=True)\nlibc.syscall({arguments})\nreturn {{'e': ctypes.get_errno()}}"
    assert run(tmp_path, body).done == {"e": 1}, call


def test_n27_it_inherits_no_environment_no_descriptors_and_an_empty_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LORIKEET_SECRET", "value")
    with (tmp_path / "secret").open("w+b") as secret:
        os.set_inheritable(secret.fileno(), True)
        body = f"return {{'env': sorted(os.environ), 'fd': tried(lambda: os.read({secret.fileno()}, 1))}}"
        done = run(tmp_path, body).done
    assert isinstance(done, dict)
    assert {name for name in done["env"] if not name.endswith("_NUM_THREADS")} <= {"LC_CTYPE"}
    assert done["fd"] == "OSError"


def test_a_memory_bomb_ends_with_it(tmp_path: Path) -> None:
    with pytest.raises(JailBroken, match="MemoryError"):
        run(tmp_path, "return {'n': len(bytearray(2 << 30))}")


def test_an_endless_loop_ends_with_its_computing_time(tmp_path: Path) -> None:
    with pytest.raises(JailBroken, match="SIGXCPU"):
        run(tmp_path, "while True: pass", limits=JailLimits(cpu_s=1, wall_s=30.0))


def test_a_child_that_ignores_the_signal_is_killed(tmp_path: Path) -> None:
    body = "signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
    with pytest.raises(JailBroken, match="SIGKILL"):
        run(tmp_path, body, limits=JailLimits(cpu_s=1, wall_s=30.0))


def test_a_child_that_sleeps_is_ended_by_the_clock(tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(JailBroken, match="more than 1 s"):
        run(tmp_path, "time.sleep(60)", limits=JailLimits(wall_s=1.0))
    assert time.monotonic() - started < 10


def test_a_child_that_closes_its_pipes_and_stays_is_ended_by_the_clock(tmp_path: Path) -> None:
    body = "task.out.close()\nos.close(1)\ntime.sleep(60)"
    with pytest.raises(JailBroken, match="more than 1 s"):
        run(tmp_path, body, limits=JailLimits(wall_s=1.0))


def test_a_crash_is_named_by_its_signal(tmp_path: Path) -> None:
    with pytest.raises(JailBroken, match="SIGSEGV"):
        run(tmp_path, "ctypes.string_at(0)")
    assert not (tmp_path / "out").exists()


def test_an_error_of_the_work_is_named_without_its_text(tmp_path: Path) -> None:
    with pytest.raises(JailBroken) as broken:
        run(tmp_path, "raise KeyError('what a stranger wrote')")
    assert "KeyError at __main__" in broken.value.reason
    assert "stranger" not in broken.value.reason


def test_an_answer_that_is_too_long_is_not_read_to_its_end(tmp_path: Path) -> None:
    with pytest.raises(JailBroken, match="more than 65536 bytes"):
        run(tmp_path, "return {'long': 'x' * 70_000}")


def test_more_output_than_allowed_is_cut_off_and_removed(tmp_path: Path) -> None:
    with pytest.raises(JailBroken, match="it wrote more"):
        run(tmp_path, "task.out.write(b'x' * 5_000)\nreturn {}", max_out_bytes=4_096)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "said",
    [b"", b"no json\\n", b"[1]\\n", b'{"done": 1, "done": 2}\\n', b'{"done": 1}\\n{"done": 1}\\n', b'{"done": NaN}\\n',
     b'{"rejected": {"code": "no_such_code", "message": "m", "param": null}}\\n',
     b'{"rejected": {"code": "rank_invalid", "message": 7, "param": null}}\\n',
     b'{"done": ' + b"[" * 99 + b"]" * 99 + b"}\\n"],
)  # fmt: skip
def test_an_answer_that_is_none_is_not_believed(tmp_path: Path, said: bytes) -> None:
    with pytest.raises(JailBroken):
        run(tmp_path, f"os.write(1, b'{said.decode()}')\nos._exit(0)")


def test_a_rejection_keeps_its_code_its_sentence_and_its_culprit(tmp_path: Path) -> None:
    body = "raise AdapterRejected('rank_invalid', subject='r', found='0', allowed='1 to 64')"
    with pytest.raises(AdapterRejected) as rejected:
        run(tmp_path, body)
    error = rejected.value
    assert (error.code, error.message, error.param) == ("rank_invalid", "r: found 0; allowed: 1 to 64.", "r")
    assert str(error) == error.message


def test_a_sentence_of_the_child_is_escaped_and_bounded(tmp_path: Path) -> None:
    body = "raise AdapterRejected('rank_invalid', subject='r', found='\\x1b[2J' * 5_000, allowed='1')"
    with pytest.raises(AdapterRejected) as rejected:
        run(tmp_path, body)
    assert rejected.value.message.isprintable()
    assert len(rejected.value.message) < 20_000


def test_a_child_that_never_was_confined_is_no_judgement_of_the_file(tmp_path: Path) -> None:
    inmate = Inmate(program=("-c", "import os; os._exit(3)"), arguments={}, files={})
    with pytest.raises(JailUnavailable, match="ended with status 3 before it was confined"):
        run_jailed(inmate, out=tmp_path / "out", max_out_bytes=1, limits=LIMITS)


def test_a_kernel_without_filters_is_said_and_nothing_is_looked_at(tmp_path: Path) -> None:
    program = PROGRAM.format(body="    return {}").replace(
        "def tried",
        "import lorikeet_adapters.sandbox.confinement.limits as limits\n"
        "from lorikeet_adapters.sandbox.confinement.seccomp import NoFilter\n"
        "def install(policy): raise NoFilter('no seccomp here')\n"
        "limits.install = install\ndef tried",
    )
    inmate = Inmate(program=("-c", program), arguments={}, files={})
    with pytest.raises(JailUnavailable, match="no seccomp here"):
        run_jailed(inmate, out=tmp_path / "out", max_out_bytes=1, limits=LIMITS)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/hostname")
    inmate = Inmate(program=("-c", ""), arguments={}, files={"given": tmp_path / "link"})
    with pytest.raises(OSError, match="symbolic links"):
        run_jailed(inmate, out=tmp_path / "out", max_out_bytes=1, limits=LIMITS)


def own_children() -> set[str]:
    """Process ids, of those that have ended and were not waited for, too."""
    return {pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}


def test_no_descriptor_and_no_process_is_left_behind(tmp_path: Path) -> None:
    before, children = set(os.listdir("/proc/self/fd")), own_children()
    for body in ("return {}", "ctypes.string_at(0)", "os._exit(1)"):
        try:
            run(tmp_path, body)
        except JailBroken:
            pass
    assert set(os.listdir("/proc/self/fd")) == before
    assert own_children() <= children  # servers of other tests may be among them
