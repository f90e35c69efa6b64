"""`lorikeet adapters push`: exit statuses, resuming, and what it leaves on the user's machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lorikeet_platform.cli.commands.adapters.certificates import certificate_summary
from lorikeet_platform.cli.commands.adapters.push import report
from lorikeet_platform.cli.console import CommandFailed, ExitCode
from lorikeet_platform.cli.upload import patience, transfer
from tests.platform.cli.conftest import BROKEN_CONNECTION, Commands, Installation
from tests.support.lora_files import write_files


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "FIRST_WAIT_S", 0.01)


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several slices a file, without megabytes."""
    monkeypatch.setattr(transfer, "SLICE_BYTES", 1024)


def state_files(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "state").rglob("*.json"))


def test_a_sound_adapter_ends_ready(
    lorikeet: Commands, installation: Installation, adapter: Path, tmp_path: Path
) -> None:
    (adapter / "README.md").write_text("not for the server")
    ended = lorikeet("adapters", "push", adapter, "--name", "pirate")
    assert ended.code == 0, ended.err
    assert "not sent: README.md" in ended.err
    assert "pirate:1 is ready: rank 4" in ended.err
    assert state_files(tmp_path) == []
    assert installation.key not in ended.out + ended.err


@pytest.mark.usefixtures("installation")
def test_json_prints_the_version_and_nothing_else_on_standard_output(lorikeet: Commands, adapter: Path) -> None:
    version = json.loads(lorikeet("adapters", "push", adapter, "--name", "pirate", "--json").out)
    assert (version["state"], version["number"], version["adapter"]) == ("ready", 1, "pirate")
    again = json.loads(lorikeet("adapters", "push", adapter, "--name", "pirate", "--json").out)
    assert again["id"] == version["id"]


@pytest.mark.usefixtures("installation")
def test_list_and_show_tell_what_was_pushed(lorikeet: Commands, adapter: Path) -> None:
    lorikeet("adapters", "push", adapter, "--name", "pirate", "--alias", "live")
    listed = lorikeet("adapters", "list")
    assert "pirate" in listed.out
    assert "live → 1" in listed.out
    assert "self_attn.q_proj" in lorikeet("adapters", "show", "pirate").out
    assert json.loads(lorikeet("adapters", "show", "pirate", "--json").out)["aliases"][0]["targets"][0]["version"] == 1


@pytest.mark.usefixtures("installation")
def test_an_adapter_of_another_width_is_rejected_with_its_code(lorikeet: Commands, tmp_path: Path) -> None:
    write_files(tmp_path / "wide", r=64, content=None)
    ended = lorikeet("adapters", "push", tmp_path / "wide", "--name", "wide")
    assert ended.code == 6
    assert "rejected" in ended.err


def use_no_key(patch: pytest.MonkeyPatch, _installation: Installation) -> None:
    patch.delenv("LORIKEET_API_KEY")


def use_a_wrong_key(patch: pytest.MonkeyPatch, _installation: Installation) -> None:
    patch.setenv("LORIKEET_API_KEY", "lk_wrong")


def use_no_server(patch: pytest.MonkeyPatch, _installation: Installation) -> None:
    patch.setenv("LORIKEET_API_URL", "http://127.0.0.1:9")


def fail(request: str, status: int, code: str = "planned") -> Callable[[pytest.MonkeyPatch, Installation], None]:
    def plan(_patch: pytest.MonkeyPatch, installation: Installation) -> None:
        installation.faults.planned[request] = [status]
        installation.faults.codes[status] = code

    return plan


@pytest.mark.parametrize(
    ("arrange", "code"),
    [
        (use_no_key, 3),
        (use_a_wrong_key, 3),
        (use_no_server, 4),
        (fail("POST /v1/uploads", 403), 3),
        (fail("POST /v1/uploads", 413), 7),
        (fail("POST /v1/uploads", 429, "too_many_uploads"), 7),
        (fail("POST /v1/uploads", 429, "rate_limit_exceeded"), 0),
        (fail("PATCH /v1/uploads", 429, "rate_limit_exceeded"), 0),
        (fail("PATCH /v1/uploads", 507, "storage_full"), 7),
        (fail("POST /v1/adapters", 409), 8),
        (fail("POST /v1/adapters", 400), 2),
    ],
)
def test_each_kind_of_failure_has_its_exit_status(
    lorikeet: Commands,
    installation: Installation,
    adapter: Path,
    monkeypatch: pytest.MonkeyPatch,
    arrange: Callable[[pytest.MonkeyPatch, Installation], None],
    code: int,
) -> None:
    arrange(monkeypatch, installation)
    ended = lorikeet("adapters", "push", adapter, "--name", "pirate")
    assert ended.code == code, ended.err
    assert "Traceback" not in ended.err


def test_local_files_that_are_no_adapter_are_found_before_anything_is_sent(
    lorikeet: Commands, installation: Installation, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    assert lorikeet("adapters", "push", tmp_path / "empty", "--name", "x").code == 5
    assert lorikeet("adapters", "push", tmp_path / "missing", "--name", "x").code == 5
    write_files(tmp_path / "pickle", content=b"\x80\x02}q\x00.")
    assert lorikeet("adapters", "push", tmp_path / "pickle", "--name", "x").code == 6
    assert installation.faults.seen == []


def test_a_missing_option_is_a_usage_error(lorikeet: Commands, adapter: Path) -> None:
    assert lorikeet("adapters", "push", adapter).code == 2


def test_there_is_no_option_for_the_key(lorikeet: Commands, adapter: Path) -> None:
    assert lorikeet("adapters", "push", adapter, "--name", "x", "--key", "lk_x").code == 2


@pytest.mark.usefixtures("installation")
def test_a_version_that_is_not_checked_in_time_ends_with_9(
    lorikeet: Commands, adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lorikeet_platform.jobs.runner.JobRunner.run", lambda _self, _job_id: False)
    ended = lorikeet("adapters", "push", adapter, "--name", "pirate", "--timeout", "1")
    assert ended.code == 9
    assert lorikeet("adapters", "push", adapter, "--name", "pirate", "--no-wait").code == 0


@pytest.mark.usefixtures("small_slices")
def test_a_version_that_could_not_be_checked_names_the_command_that_checks_it_again() -> None:
    version = {"adapter": "support", "number": 3, "state": "failed_internal", "warnings": []}
    with pytest.raises(CommandFailed, match="lorikeet adapters retry support:3") as failure:
        report(version)
    assert failure.value.exit_code == ExitCode.NETWORK


def test_passing_trouble_is_waited_out(lorikeet: Commands, installation: Installation, adapter: Path) -> None:
    installation.faults.planned |= {
        "POST /v1/uploads": [503],
        "PATCH /v1/uploads": [None, 503, BROKEN_CONNECTION],
        "HEAD /v1/uploads": [503],
        "POST /v1/adapters": [503, BROKEN_CONNECTION],
        "GET /v1/adapters/pirate": [503],
    }
    ended = lorikeet("adapters", "push", adapter, "--name", "pirate")
    assert ended.code == 0, ended.err
    assert "trying again" in ended.err


@pytest.mark.usefixtures("small_slices")
def test_a_slice_damaged_on_its_way_is_sent_again(
    lorikeet: Commands, installation: Installation, adapter: Path
) -> None:
    installation.faults.planned["PATCH /v1/uploads"] = [None, 460]
    ended = lorikeet("adapters", "push", adapter, "--name", "pirate")
    assert ended.code == 0, ended.err


def test_the_advice_to_continue_repeats_every_option_that_matters(
    lorikeet: Commands, installation: Installation, adapter: Path
) -> None:
    url = installation.api_url.replace("127.0.0.1", "localhost")
    installation.faults.planned["GET /v1/uploads"] = [503]
    ended = lorikeet("adapters", "push", adapter, "--name", "pirate", "--alias", "live", "--api-url", url)
    assert ended.code == 4
    assert f"--name pirate --alias live --api-url {url}" in ended.err


@pytest.mark.usefixtures("installation")
def test_any_alias_can_be_given_to_a_new_version(lorikeet: Commands, adapter: Path) -> None:
    assert lorikeet("adapters", "push", adapter, "--name", "pirate", "--alias", "beta").code == 0
    aliases = json.loads(lorikeet("adapters", "show", "pirate", "--json").out)["aliases"]
    assert ("beta", 1) in [(alias["alias"], alias["targets"][0]["version"]) for alias in aliases]


def test_what_cannot_be_an_alias_is_refused_before_anything_is_sent(
    lorikeet: Commands, installation: Installation, adapter: Path
) -> None:
    ended = lorikeet("adapters", "push", adapter, "--name", "pirate", "--alias", "No Alias")
    assert ended.code == 2
    assert installation.faults.seen == []


@pytest.mark.usefixtures("installation")
def test_ctrl_c_ends_with_130_and_says_how_to_continue(
    lorikeet: Commands, adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(transfer.Transfer, "_send_rest", interrupt)
    ended = lorikeet("adapters", "push", adapter, "--name", "pirate")
    assert ended.code == 130
    assert f"lorikeet adapters push {adapter} --name pirate" in ended.err


def test_patience_ends_when_there_is_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "LONGEST_WAIT_S", 0.01)
    now = 0.0
    notes: list[str] = []

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds + 1

    patient = patience.Patience(notes.append, budget_s=20, clock=lambda: now, sleep=sleep)
    now = 15.0
    patient.made_progress()
    while now < 30:
        patient.wait_after("gone")
    assert notes[0].startswith("gone; trying again in")
    now = 36.0
    with pytest.raises(CommandFailed, match="no progress for 20 s, last: gone"):
        patient.wait_after("gone")


@pytest.mark.parametrize(
    ("certificate", "summary"),
    [
        (None, ""),
        (
            {"effect": 0.1234, "oracle": "peft", "max_logit_difference": 3.1e-6},
            "; effect 12.3 %, within 3.1e-06 of PEFT's logits",
        ),
        ({"effect": 0.0, "oracle": "reference_ops"}, "; effect 0.0 %, not compared with PEFT"),
    ],
)
def test_the_last_line_sums_up_the_certificate(certificate: dict[str, Any] | None, summary: str) -> None:
    assert certificate_summary(certificate) == summary
