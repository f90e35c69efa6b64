"""A version's life from the command line: look, point aliases, go back, retire, restore, download, delete."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

from lorikeet_platform.db.tables import VersionFile
from lorikeet_platform.registry.files import file_key
from tests.platform.cli.conftest import Commands, Installation
from tests.support.lora_files import tensors, write_files


@pytest.fixture
def two_versions(installation: Installation, lorikeet: Commands, tmp_path: Path) -> list[Path]:
    """`support` with the versions 1, which is live, and 2."""
    folders = []
    for seed in (1, 2):
        folder = tmp_path / f"version-{seed}"
        write_files(folder, tensors(seed=seed))
        pushed = lorikeet("adapters", "push", folder, "--name", "support")
        assert pushed.code == 0, pushed.err
        folders.append(folder)
    return folders


def alias(lorikeet: Commands, name: str = "live") -> dict[str, Any]:
    found = json.loads(lorikeet("adapters", "alias", "list", "support", "--json").out)
    return next(item for item in found if item["alias"] == name)


@pytest.mark.usefixtures("two_versions")
def test_versions_are_listed_newest_first_and_shown_with_their_certificate(lorikeet: Commands) -> None:
    listed = json.loads(lorikeet("adapters", "versions", "support", "--json").out)
    assert [version["number"] for version in listed] == [2, 1]
    table = lorikeet("adapters", "versions", "support").out
    assert table.index("2 ") < table.index("1 ")
    shown = lorikeet("adapters", "show", "support:1").out
    for line in ("against PEFT", "100 % of 64 greedy tokens", "neighbours", "this engine", listed[1]["digest"]):
        assert line in shown
    assert "live → 1" in lorikeet("adapters", "show", "support").err
    assert lorikeet("adapters", "show", "support:9").code == 2
    assert lorikeet("adapters", "show", "support:x").code == 2


@pytest.mark.usefixtures("two_versions")
def test_an_alias_is_set_shared_out_and_rolled_back_and_its_history_says_so(lorikeet: Commands) -> None:
    assert "support@live points at 2 (revision 2)" in lorikeet("adapters", "alias", "set", "support", "live", "2").err
    shared = lorikeet(
        *("adapters", "alias", "set", "support", "live", "1=90", "2=10", "--sticky", "user"),
        *("--max-error-rate", "0.05", "--max-ttft-ratio", "1.5", "--reason", "try it"),
    )
    assert "1 (90 %), 2 (10 %) (revision 3)" in shared.err
    found = alias(lorikeet)
    assert (found["sticky"], found["guard"]["max_error_rate"], found["guard"]["min_requests"]) == ("user", 0.05, 200)
    assert "errors ≤ 5 %, first token ≤ 1.5× after 200 requests" in lorikeet("adapters", "alias", "list", "support").out
    assert "live → 1 (90 %), 2 (10 %)" in lorikeet("adapters", "list").out
    assert "points at 2 (revision 4)" in lorikeet("adapters", "alias", "rollback", "support").err
    assert "points at 1 (revision 5)" in lorikeet("adapters", "alias", "rollback", "support", "--to", "1").err
    history = lorikeet("adapters", "alias", "history", "support").out
    assert "try it" in history
    assert len(json.loads(lorikeet("adapters", "alias", "history", "support", "--json").out)) == 5


@pytest.mark.usefixtures("two_versions")
def test_a_change_of_an_alias_that_cannot_be_made_moves_nothing(lorikeet: Commands) -> None:
    before = alias(lorikeet)
    for arguments, code in [
        (("1", "2"), 2),  # shares are missing
        (("1=50", "2=40"), 2),
        (("1=90", "2=10", "--min-requests", "50"), 2),  # a guard without a bound
        (("7",), 2),
        (("1=100=2",), 2),
        (("2", "--if-revision", "9"), 8),
        (("2", "--max-error-rate", "2"), 2),
    ]:
        ended = lorikeet("adapters", "alias", "set", "support", "live", *arguments)
        assert ended.code == code, (arguments, ended.err)
    assert lorikeet("adapters", "alias", "rollback", "support", "beta").code == 2
    assert alias(lorikeet) == before


@pytest.mark.usefixtures("two_versions")
def test_an_alias_that_is_removed_is_gone_and_its_history_stays(lorikeet: Commands) -> None:
    assert lorikeet("adapters", "alias", "set", "support", "beta", "2").code == 0
    assert lorikeet("adapters", "alias", "remove", "support", "beta").code == 0
    assert "beta" not in lorikeet("adapters", "alias", "list", "support").out
    assert "removed" in lorikeet("adapters", "alias", "history", "support", "beta").out
    assert lorikeet("adapters", "alias", "remove", "support", "beta").code == 2


@pytest.mark.usefixtures("two_versions")
def test_a_version_is_retired_restored_and_deleted_unless_an_alias_points_at_it(
    lorikeet: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = lorikeet("adapters", "retire", "support:1")
    assert refused.code == 8
    assert "live" in refused.err
    retired = lorikeet("adapters", "retire", "support:2", "--reason", "too polite")
    assert retired.code == 0
    assert "can be restored until 20" in retired.err
    assert "too polite" in lorikeet("adapters", "show", "support:2").out
    assert "ready" in lorikeet("adapters", "restore", "support:2").err
    assert lorikeet("adapters", "delete", "support:1", "--yes").code == 8
    assert lorikeet("adapters", "delete", "support:2", "--yes").code == 0
    assert lorikeet("adapters", "restore", "support:2").code == 8
    assert lorikeet("adapters", "retire", "support").code == 2
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    asked = lorikeet("adapters", "delete", "support")
    assert asked.code == 1
    assert "for good?" in asked.err
    assert lorikeet("adapters", "delete", "support", "--yes").code == 0
    assert lorikeet("adapters", "show", "support").code == 2


@pytest.mark.usefixtures("two_versions")
def test_an_administrator_quarantines_and_releases_a_version(lorikeet: Commands) -> None:
    assert lorikeet("tenants", "quarantine", "harbour", "support:1", "--reason", "odd answers").code == 0
    version = json.loads(lorikeet("adapters", "show", "support:1", "--json").out)
    assert (version["state"], version["retire_reason"]) == ("quarantined", "odd answers")
    assert lorikeet("adapters", "restore", "support:1").code == 8, "a tenant cannot end it"
    assert lorikeet("tenants", "release", "harbour", "support:1").code == 0
    assert json.loads(lorikeet("adapters", "show", "support:1", "--json").out)["state"] == "ready"


def test_a_version_is_downloaded_as_it_was_pushed_and_nothing_is_overwritten(
    lorikeet: Commands, two_versions: list[Path], tmp_path: Path
) -> None:
    for model, source in (
        ("support", two_versions[0]),
        ("support@live", two_versions[0]),
        ("support:2", two_versions[1]),
    ):
        target = tmp_path / f"copy of {model}"
        pulled = lorikeet("adapters", "pull", model, target)
        assert pulled.code == 0, pulled.err
        assert contents(target) == contents(source)
        assert lorikeet("adapters", "pull", model, target).code == 0, "what is there already stays"
    (tmp_path / "copy of support" / "adapter_config.json").write_text("mine")
    ended = lorikeet("adapters", "pull", "support", tmp_path / "copy of support")
    assert ended.code == 5
    assert (tmp_path / "copy of support" / "adapter_config.json").read_text() == "mine"
    assert lorikeet("adapters", "alias", "set", "support", "live", "1=50", "2=50").code == 0
    unclear = lorikeet("adapters", "pull", "support", tmp_path / "unclear")
    assert unclear.code == 2
    assert "support:1 or support:2" in unclear.err


def test_a_download_of_damaged_bytes_leaves_no_file(
    installation: Installation, lorikeet: Commands, two_versions: list[Path], tmp_path: Path
) -> None:
    context = installation.context
    with context.db.platform.read() as work:
        file = work.query(VersionFile).filter_by(filename="adapter_model.safetensors").first()
        assert file is not None
        tenant_id = file.tenant_id
    weights = (two_versions[0] / "adapter_model.safetensors").read_bytes()
    stored = context.settings.blob_dir / file_key(tenant_id, hashlib.sha256(weights).hexdigest())
    stored.chmod(0o640)
    stored.write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    ended = lorikeet("adapters", "pull", "support:1", tmp_path / "damaged")
    assert ended.code in (4, 10)
    assert not (tmp_path / "damaged" / "adapter_model.safetensors").exists()
    assert json.loads(lorikeet("adapters", "show", "support:1", "--json").out)["state"] == "ready"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}
