"""`lorikeet adapters push`: what was begun goes on, from any machine, and never mixes two contents."""

from __future__ import annotations

import json
import socket
import stat
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from lorikeet_platform.cli.api import Api, ApiUnreachable
from lorikeet_platform.cli.upload import patience, transfer
from lorikeet_platform.cli.upload.tus import BegunUpload, TusClient
from lorikeet_platform.db.tables import VersionFile
from tests.platform.cli.conftest import Commands, Installation
from tests.support.lora_files import tensors, write_files, write_shards


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "FIRST_WAIT_S", 0.01)


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several slices a file, without megabytes."""
    monkeypatch.setattr(transfer, "SLICE_BYTES", 1024)


def state_files(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "state").rglob("*.json"))


def n_slices(folder: Path) -> int:
    return sum(-(-file.stat().st_size // 1024) for file in folder.iterdir())


def open_uploads(installation: Installation) -> list[dict[str, Any]]:
    headers = {"authorization": f"Bearer {installation.key}"}
    answer = httpx.get(f"{installation.api_url}/v1/uploads", headers=headers, trust_env=False)
    uploads: list[dict[str, Any]] = answer.json()["data"]
    return uploads


@pytest.mark.usefixtures("small_slices")
def test_an_interrupted_push_continues_where_it_stopped(
    lorikeet: Commands, installation: Installation, adapter: Path, tmp_path: Path
) -> None:
    installation.faults.planned["PATCH /v1/uploads"] = [None, None, 507]
    assert lorikeet("adapters", "push", adapter, "--name", "pirate").code == 7
    [state] = state_files(tmp_path)
    assert stat.S_IMODE(state.stat().st_mode) == 0o600
    assert installation.key not in state.read_text()
    assert set(json.loads(state.read_text())) == {"uploads"}
    slices_before = installation.faults.count("PATCH")
    assert lorikeet("adapters", "push", adapter, "--name", "pirate").code == 0
    assert installation.faults.count("POST /v1/uploads") == 2
    assert installation.faults.count("PATCH") - slices_before == n_slices(adapter) - 2


@pytest.mark.usefixtures("small_slices")
def test_another_machine_continues_from_what_the_server_lists(
    lorikeet: Commands, installation: Installation, adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installation.faults.planned["PATCH /v1/uploads"] = [None, None, 507]
    assert lorikeet("adapters", "push", adapter, "--name", "pirate").code == 7
    slices_before = installation.faults.count("PATCH")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    assert lorikeet("adapters", "push", adapter, "--name", "pirate").code == 0
    assert installation.faults.count("POST /v1/uploads") == 2
    assert installation.faults.count("PATCH") - slices_before == n_slices(adapter) - 2


@pytest.mark.usefixtures("small_slices")
def test_what_was_begun_for_other_content_or_another_adapter_is_left_alone(
    lorikeet: Commands, installation: Installation, adapter: Path, tmp_path: Path
) -> None:
    installation.faults.planned["PATCH /v1/uploads"] = [None, 507]
    lorikeet("adapters", "push", adapter, "--name", "pirate")
    begun = open_uploads(installation)
    write_files(tmp_path / "other", content=tensors(seed=5), lora_alpha=4)
    assert lorikeet("adapters", "push", tmp_path / "other", "--name", "pirate").code == 0
    assert lorikeet("adapters", "push", adapter, "--name", "haiku").code == 0
    assert open_uploads(installation) == begun


@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize("keeps_state", [True, False])
def test_fresh_ends_what_was_begun_and_sends_everything(
    lorikeet: Commands,
    installation: Installation,
    adapter: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    keeps_state: bool,
) -> None:
    installation.faults.planned["PATCH /v1/uploads"] = [None, None, 507]
    lorikeet("adapters", "push", adapter, "--name", "pirate")
    [*begun] = open_uploads(installation)
    if not keeps_state:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    assert lorikeet("adapters", "push", adapter, "--name", "pirate", "--fresh").code == 0
    assert installation.faults.count("POST /v1/uploads") == 4
    assert installation.faults.count("DELETE /v1/uploads") == len(begun) == 2
    assert open_uploads(installation) == []


@pytest.mark.usefixtures("small_slices")
def test_uploads_that_the_server_no_longer_has_are_sent_again(
    lorikeet: Commands, installation: Installation, adapter: Path
) -> None:
    installation.faults.planned["PATCH /v1/uploads"] = [None, None, 507]
    lorikeet("adapters", "push", adapter, "--name", "pirate")
    installation.faults.planned["HEAD /v1/uploads"] = [404, 404]
    assert lorikeet("adapters", "push", adapter, "--name", "pirate").code == 0


@pytest.mark.parametrize("file_name", ["adapter_config.json", "adapter_model.safetensors"])
@pytest.mark.usefixtures("small_slices")
def test_a_file_that_changes_while_it_is_sent_is_not_mixed_and_not_left_behind(
    lorikeet: Commands, installation: Installation, adapter: Path, monkeypatch: pytest.MonkeyPatch, file_name: str
) -> None:
    append = TusClient.append

    def meddle(self: TusClient, upload_id: str, offset: int, content: bytes) -> int:
        path = adapter / file_name
        path.write_bytes(path.read_bytes()[:-1] + b"}")
        return append(self, upload_id, offset, content)

    monkeypatch.setattr(TusClient, "append", meddle)
    ended = lorikeet("adapters", "push", adapter, "--name", "pirate")
    assert (ended.code, f"{file_name} changed" in ended.err) == (5, True), ended.err
    assert installation.faults.count("POST /v1/adapters") == 0
    assert [upload for upload in open_uploads(installation) if upload["filename"] == file_name] == []


def test_a_file_cut_short_while_it_is_sent_is_found(
    lorikeet: Commands, installation: Installation, adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer.Transfer, "_check_unchanged", lambda *_: None)
    list_begun = TusClient.list_begun

    def cut(self: TusClient, name: str) -> list[BegunUpload]:
        with (adapter / "adapter_model.safetensors").open("r+b") as file:
            file.truncate(100)
        return list_begun(self, name)

    monkeypatch.setattr(TusClient, "list_begun", cut)
    assert lorikeet("adapters", "push", adapter, "--name", "pirate").code == 5
    assert installation.faults.count("POST /v1/adapters") == 0


def test_bytes_that_the_server_finds_to_be_others_end_with_10(
    lorikeet: Commands, installation: Installation, adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = TusClient.append

    def spoil(self: TusClient, upload_id: str, offset: int, content: bytes) -> int:
        return append(self, upload_id, offset, content[:-1] + b"!")

    monkeypatch.setattr(TusClient, "append", spoil)
    ended = lorikeet("adapters", "push", adapter, "--name", "pirate")
    assert ended.code == 10, ended.err
    assert "declared" in ended.err
    assert open_uploads(installation) == []


@pytest.mark.usefixtures("small_slices")
def test_a_slice_that_another_machine_has_sent_is_not_sent_again(
    lorikeet: Commands, installation: Installation, adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = TusClient.append
    n_raced = 0

    def race(self: TusClient, upload_id: str, offset: int, content: bytes) -> int:
        nonlocal n_raced
        if n_raced < 2:
            n_raced += 1
            append(self, upload_id, offset, content)  # the other machine was first
        return append(self, upload_id, offset, content)

    monkeypatch.setattr(TusClient, "append", race)
    ended = lorikeet("adapters", "push", adapter, "--name", "pirate")
    assert ended.code == 0, ended.err
    assert installation.faults.count("PATCH") == n_slices(adapter) + 2
    assert "the server has another offset" in ended.err


def test_uploads_that_another_machine_sealed_lead_to_its_version(
    lorikeet: Commands, installation: Installation, adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = Api.post

    def seal_twice(self: Api, path: str, body: dict[str, object] | None = None) -> Any:
        ask(self, path, body)
        return ask(self, path, body)

    monkeypatch.setattr(Api, "post", seal_twice)
    ended = lorikeet("adapters", "push", adapter, "--name", "pirate", "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["number"] == 1
    shown = json.loads(lorikeet("adapters", "show", "pirate", "--json").out)
    assert len(shown["versions"]) == 1
    assert open_uploads(installation) == []


def test_uploads_that_somebody_ended_before_sealing_are_sent_once_more(
    lorikeet: Commands, installation: Installation, adapter: Path
) -> None:
    installation.faults.planned["POST /v1/adapters"] = [404]
    installation.faults.codes[404] = "not_found"
    ended = lorikeet("adapters", "push", adapter, "--name", "pirate")
    assert ended.code == 0, ended.err
    assert "beginning again" in ended.err
    assert installation.faults.count("POST /v1/uploads") == 4


def test_shards_are_sent_with_their_index(lorikeet: Commands, installation: Installation, tmp_path: Path) -> None:
    folder = write_shards(tmp_path / "sharded", [tensors(layers=(0,)), tensors(layers=(1,))])
    ended = lorikeet("adapters", "push", folder, "--name", "pirate", "--no-wait")
    assert ended.code == 0, ended.err
    with installation.context.db.platform.read() as work:
        names = set(work.scalars(select(VersionFile.filename)))
    assert names == {file.name for file in folder.iterdir()}
    assert len(names) == 4


def test_json_says_what_happens_on_standard_error(
    lorikeet: Commands, installation: Installation, adapter: Path
) -> None:
    installation.faults.planned["PATCH /v1/uploads"] = [503]
    (adapter / "README.md").write_text("not for the server")
    ended = lorikeet("adapters", "push", adapter, "--name", "pirate", "--json")
    events = [json.loads(line) for line in ended.err.splitlines() if line.startswith("{")]
    assert events[0] == {"event": "note", "message": "not sent: README.md"}
    total = sum((adapter / name).stat().st_size for name in ("adapter_config.json", "adapter_model.safetensors"))
    progress = [event for event in events if event["event"] == "progress"]
    assert progress[0]["bytes"] == 0
    assert (progress[-1]["bytes"], progress[-1]["total"]) == (total, total)
    assert any("trying again" in event.get("message", "") for event in events)
    assert {"event": "sealed", "adapter": "pirate", "version": 1, "state": "validating"} in events
    assert json.loads(ended.out)["state"] == "ready"


def test_a_server_that_takes_a_request_and_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lorikeet_platform.cli.api.TIMEOUT_S", 0.2)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        Api(f"http://127.0.0.1:{silent.getsockname()[1]}", "lk_x") as api,
        pytest.raises(ApiUnreachable),
    ):
        TusClient(api).append("upl_1", 0, bytes(4 << 20))
