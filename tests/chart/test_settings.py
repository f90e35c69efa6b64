"""The chart and the programs name the same settings."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from lorikeet_engine.config import EngineConfig
from lorikeet_engine.socket_keys import SocketKeys
from lorikeet_platform.auth.pepper import FILE_NAME as PEPPER_FILE
from lorikeet_platform.auth.pepper import load_pepper
from lorikeet_platform.settings import EngineSettings, RetentionSettings, Settings, TracingSettings, ValidationSettings
from tests.support.chart_release import CHART_DIR, Release, render

PREFIX = "LORIKEET_"


def test_every_setting_in_the_chart_is_one_that_the_programs_know(release: Release) -> None:
    for name, environment in _environments(release).items():
        unknown = [variable for variable in environment if not _is_known(variable)]
        assert unknown == [], name


def test_the_programs_accept_the_values(release: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    for environment in _environments(release).values():
        with monkeypatch.context() as patch:
            for variable, text in environment.items():
                patch.setenv(variable, text)
            Settings()


def test_every_knob_of_the_engine_can_be_set_and_starts_with_the_engines_own_default() -> None:
    knobs = yaml.safe_load((CHART_DIR / "values.yaml").read_text())["engine"]["knobs"]
    decided_by_the_chart = {"device", "health_host", "health_port", "outbox_dir"}
    assert knobs.keys() == EngineSettings.model_fields.keys() - decided_by_the_chart
    # a container's share of a node is not what the engine would measure
    shares = {"threads", "kv_cache_bytes"}
    defaults = {field.name: field.default for field in fields(EngineConfig)}
    assert {k: v for k, v in knobs.items() if k not in shares} == {k: defaults[k] for k in knobs.keys() - shares}


def test_the_limits_of_a_validation_start_with_the_settings_own_defaults() -> None:
    values = yaml.safe_load((CHART_DIR / "values.yaml").read_text())
    assert values["worker"]["validation"] == ValidationSettings().model_dump()
    retention = values["adapters"]["retention"]
    assert (retention["retiredDays"], retention["rejectedDays"]) == tuple(RetentionSettings().model_dump().values())
    assert values["worker"]["concurrency"] == Settings.model_fields["worker_concurrency"].default


def test_traces_start_with_the_settings_own_defaults() -> None:
    values = yaml.safe_load((CHART_DIR / "values.yaml").read_text())
    assert values["gateway"]["tracing"] == TracingSettings().model_dump()


def test_the_pepper_lies_where_the_gateway_looks_for_it(release: Release) -> None:
    data_dir = _environments(release)["gateway"]["LORIKEET_DATA_DIR"]
    (gateway,) = release.one("Deployment", "gateway")["spec"]["template"]["spec"]["containers"]
    (mount,) = (mount for mount in gateway["volumeMounts"] if mount["name"] == "pepper")
    assert mount["mountPath"] == f"{data_dir}/{PEPPER_FILE}"


def test_the_socket_key_file_that_the_chart_accepts_is_one_that_the_engine_reads(tmp_path: Path) -> None:
    file = tmp_path / "socket.key"
    file.write_text(SocketKeys.generate().text())
    secret = {"engineSocketKey": {"value": file.read_text()}}
    stored = render({"secrets": secret}).one("Secret", "engine-socket-key")["stringData"]["socket.key"]
    file.write_text(stored)
    assert SocketKeys.read(file).text() == stored


def test_the_pepper_file_that_the_chart_accepts_is_one_that_the_gateway_reads(tmp_path: Path) -> None:
    made = load_pepper(tmp_path)
    text = (tmp_path / PEPPER_FILE).read_text()
    stored = render({"secrets": {"pepper": {"value": text}}}).one("Secret", "pepper")["stringData"]["pepper.json"]
    (tmp_path / PEPPER_FILE).write_text(stored)
    assert load_pepper(tmp_path) == made


def _environments(release: Release) -> dict[str, dict[str, str]]:
    """Per container, each LORIKEET_ variable and its text; a stand-in for what a Secret holds."""
    maps = {document["metadata"]["name"]: document["data"] for document in release.of_kind("ConfigMap")}
    found: dict[str, dict[str, str]] = {}
    for _, container in release.containers():
        environment: dict[str, str] = {}
        for source in container.get("envFrom", []):
            environment |= maps[source["configMapRef"]["name"]]
        environment |= {v["name"]: v.get("value", _stand_in(v["name"])) for v in container["env"]}
        found[container["name"]] = {k: v for k, v in environment.items() if k.startswith(PREFIX)}
    return found


def _stand_in(variable: str) -> str:
    return "postgresql+psycopg://secret" if "DATABASE" in variable else "redis://secret"


def _is_known(variable: str) -> bool:
    model: type[BaseModel] = Settings
    *outer, last = variable.removeprefix(PREFIX).lower().split("__")
    for part in outer:
        inner = model.model_fields[part].annotation if part in model.model_fields else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return False
        model = inner
    return last in model.model_fields
