"""What a server is started with: options before the environment, and a wrong one named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lorikeet_adapters.store.opening import StoreAddress
from lorikeet_engine.config import read_config
from lorikeet_platform.cli.configuration import load_settings, redacted
from lorikeet_platform.cli.console import CommandFailed
from lorikeet_platform.cli.embedded.engine_child import write_engine_config


def test_an_option_goes_before_the_environment_and_leaves_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LORIKEET_ENGINE__QUANTIZATION", "none")
    monkeypatch.setenv("LORIKEET_ENGINE__MAX_NUM_SEQS", "7")
    assert load_settings().engine.quantization == "none"
    settings = load_settings(quantization="int8")
    assert (settings.engine.quantization, settings.engine.max_num_seqs) == ("int8", 7)


def test_another_model_keeps_the_other_options() -> None:
    settings = load_settings(model="somewhere/Some-Model", quantization="int8")
    assert (settings.model_name, settings.engine.quantization) == ("some-model", "int8")


def test_an_option_with_a_wrong_value_is_named() -> None:
    with pytest.raises(CommandFailed, match=r"ENGINE__QUANTIZATION"):
        load_settings(quantization="int4")


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"STORE_URL": "s3://name:secret@bucket"}, "STORE_URL"),
        ({"STORE_URL": "http://bucket"}, "STORE_URL"),
        ({"STORE_URL": "s3://bucket/../other"}, "STORE_URL"),
        ({"STORE_ENDPOINT": "https://minio.local"}, "STORE_ENDPOINT"),
        ({"STORE_REGION": "eu-west-1"}, "STORE_REGION"),
        ({"STORE_URL": "s3://bucket", "STORE_ENDPOINT": "https://key:secret@minio.local"}, "STORE_ENDPOINT"),
        ({"STORE_URL": "s3://bucket", "STORE_ENDPOINT": "http://minio.local"}, "STORE_ALLOW_HTTP"),
        ({"STORE_URL": "s3://bucket", "STORE_ALLOW_HTTP": "true"}, "STORE_ALLOW_HTTP"),
    ],
)
def test_a_store_that_cannot_be_meant_is_refused_by_name_and_without_its_value(
    variables: dict[str, str], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"LORIKEET_{name}", value)
    with pytest.raises(CommandFailed) as refusal:
        load_settings()
    assert f"LORIKEET_{named}" in refusal.value.message
    assert "secret" not in refusal.value.message


def test_the_store_is_a_folder_of_the_data_unless_it_is_a_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LORIKEET_DATA_DIR", str(tmp_path))
    assert load_settings().store_address == StoreAddress(str(tmp_path / "blobs"))
    monkeypatch.setenv("LORIKEET_STORE_URL", "s3://bucket/prefix")
    monkeypatch.setenv("LORIKEET_STORE_ENDPOINT", "http://127.0.0.1:9000")
    monkeypatch.setenv("LORIKEET_STORE_REGION", "eu-west-1")
    monkeypatch.setenv("LORIKEET_STORE_ALLOW_HTTP", "true")
    assert load_settings().store_address == StoreAddress(
        "s3://bucket/prefix", endpoint="http://127.0.0.1:9000", region="eu-west-1", allow_http=True
    )


def test_no_credential_of_the_store_is_among_the_settings_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIASHOWNNOWHERE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "shown-nowhere")
    monkeypatch.setenv("LORIKEET_STORE_URL", "s3://bucket")
    shown = str(redacted(load_settings()))
    assert "s3://bucket" in shown
    assert "AKIA" not in shown
    assert "shown-nowhere" not in shown


def test_the_engine_is_told_where_the_store_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "written-nowhere")
    monkeypatch.setenv("LORIKEET_STORE_URL", "s3://bucket/prefix")
    monkeypatch.setenv("LORIKEET_STORE_REGION", "eu-west-1")
    file = tmp_path / "engine.json"
    write_engine_config(load_settings(), model_dir=tmp_path, endpoint="ipc://engine", path=file)
    config = read_config(json.loads(file.read_text()))
    assert config.outbox_dir == load_settings().data_dir.resolve() / "outbox"
    assert (config.store_url, config.store_region, config.store_allow_http) == (
        "s3://bucket/prefix",
        "eu-west-1",
        False,
    )
    assert "nowhere" not in file.read_text()
