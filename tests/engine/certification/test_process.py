"""The certifier's child: it holds the model for the next adapter, and whatever becomes of it, the caller goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lorikeet_adapters.errors import AdapterRejected
from lorikeet_engine.certification import process
from lorikeet_engine.certification.process import Certifier, CertifierBroken
from tests.engine.certification.conftest import Made, Make

REQUEST: dict[str, Any] = {
    "folder": Path("folder"),
    "image": Path("image"),
    "digest": "0" * 64,
    "serving_dtype": "bfloat16",
}
Open = Callable[..., Certifier]
PATCHED = "import sys\nimport lorikeet_engine.certification.__main__ as child\n{patch}\nchild.main(sys.argv[1:])"


@pytest.fixture
def open_certifier(model_dir: Path) -> Iterator[Open]:
    opened = []

    def start(**given: Any) -> Certifier:
        certifier = Certifier(**{"model_dir": model_dir, "base_model_name": "tiny", "max_rank": 64, **given})
        opened.append(certifier)
        return certifier

    yield start
    for certifier in opened:
        certifier.close()


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let another program be the child."""

    def script(program: str) -> None:
        monkeypatch.setattr(process, "PROGRAM", ("-I", "-c", program))

    return script


def child_of(certifier: Certifier) -> int:
    assert certifier._child is not None
    return certifier._child.pid


@pytest.mark.slow
def test_one_child_measures_many_adapters_and_refuses_what_breaks_its_arithmetic(
    open_certifier: Open, make: Make, foreign: Made
) -> None:
    certifier, first = open_certifier(), make()
    measured = certifier.measure(**first.given)
    child = child_of(certifier)
    assert (measured.oracle, measured.greedy_agreement) == ("peft", 1.0)
    with pytest.raises(AdapterRejected) as rejected:
        certifier.measure(**foreign.given)
    assert (rejected.value.code, rejected.value.param) == ("base_model_mismatch", "layers.0.self_attn.q_proj.lora_A")
    assert certifier.measure(**first.given) == measured
    assert child_of(certifier) == child
    certifier.close()
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


@pytest.mark.slow
def test_after_an_error_or_a_crash_the_next_adapter_gets_a_new_child(open_certifier: Open, make: Make) -> None:
    certifier, made = open_certifier(), make()
    with pytest.raises(CertifierBroken, match="another digest"):
        certifier.measure(**made.given | {"digest": "0" * 64})
    measured = certifier.measure(**made.given)
    first = child_of(certifier)
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    assert certifier.measure(**made.given) == measured
    assert child_of(certifier) != first


@pytest.mark.slow
def test_a_child_that_nothing_is_asked_of_ends(
    open_certifier: Open, make: Make, scripted: Callable[[str], None]
) -> None:
    scripted(PATCHED.format(patch="child.IDLE_S = 0.1"))
    certifier, made = open_certifier(), make()
    measured = certifier.measure(**made.given)
    first = child_of(certifier)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    assert certifier.measure(**made.given) == measured
    assert child_of(certifier) != first


@pytest.mark.slow
def test_a_model_that_does_not_fit_is_said(open_certifier: Open, make: Make) -> None:
    with pytest.raises(CertifierBroken, match="no adapter can be measured here"):
        open_certifier(model_dir=Path("/nowhere")).measure(**make().given)


@pytest.mark.slow
def test_n27_the_child_has_no_network_no_environment_and_writes_nothing(
    open_certifier: Open, scripted: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LORIKEET_SECRET", "value")
    attempts = f"""
import os, socket, subprocess, threading
def tried(attempt):
    try:
        attempt()
    except OSError:
        return "refused"
    return "done"
def answer(measurer, request):
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
    return {{"failed": " ".join([
        tried(socket.socket),
        tried(os.fork),
        tried(lambda: subprocess.run(["/bin/true"])),
        tried(lambda: open({str(tmp_path / "made")!r}, "w")),
        tried(lambda: os.unlink({str(tmp_path / "kept")!r})),
        tried(lambda: open({str(tmp_path / "kept")!r})),
        str("LORIKEET_SECRET" in os.environ),
        str(os.getpriority(os.PRIO_PROCESS, 0)),
    ])}}
child.Measurer = lambda *_, **__: None
child._answer = answer
"""
    (tmp_path / "kept").touch()
    scripted(PATCHED.format(patch=attempts))
    with pytest.raises(CertifierBroken, match=r"refused refused refused refused refused done False 1\d"):
        open_certifier().measure(**REQUEST)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("import os; os.abort()", "SIGABRT"),
        ("import sys; sys.exit(3)", "ended with status 3"),
        ("input(); print('no json')", "an answer that is none"),
        ("input(); print('{\"measured\": {}}')", "its answer is none"),
        ("input(); print('{\"measured\": 5}')", "its answer is none"),
        ("input(); print('x' * 70_000)", "more than 65536 bytes"),
        ('input(); print(\'{"failed": "\\x1b[2J"}\')', "none"),
        ("import time; time.sleep(60)", "took too long"),
    ],
)
def test_a_child_that_does_not_answer_is_broken(
    open_certifier: Open, scripted: Callable[[str], None], program: str, reason: str
) -> None:
    scripted(program)
    started = time.monotonic()
    with pytest.raises(CertifierBroken, match=reason):
        open_certifier(timeout_s=2.0).measure(**REQUEST)
    assert time.monotonic() - started < 20


def test_the_callers_side_needs_neither_torch_nor_transformers() -> None:
    program = (
        "import sys, lorikeet_engine.certification.process, lorikeet_engine.certification.certifying\n"
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers', 'peft')))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_closing_what_never_started_does_nothing(open_certifier: Open) -> None:
    open_certifier().close()
