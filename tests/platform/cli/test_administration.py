"""Tenants, keys, settings, chat: what the small commands print, and what they never print."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.platform.cli.conftest import Commands, Installation


@pytest.mark.usefixtures("installation")
def test_a_tenant_and_its_key_are_made_used_and_revoked(lorikeet: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lorikeet("tenants", "create", "orchard", "--name", "Orchard", "--weight", "2.5").code == 0
    assert "2.5" in lorikeet("tenants", "list").out
    assert lorikeet("tenants", "create", "orchard").code == 8
    assert lorikeet("tenants", "create", "NO").code == 2
    assert lorikeet("tenants", "create", "meadow", "--weight", "0").code == 2
    assert {tenant["slug"] for tenant in json.loads(lorikeet("tenants", "list", "--json").out)} == {
        "harbour",
        "orchard",
    }
    key = json.loads(lorikeet("keys", "create", "--tenant", "orchard", "--name", "ci", "--json").out)
    monkeypatch.setenv("LORIKEET_API_KEY", key["secret"])
    assert lorikeet("adapters", "list").code == 0
    listed = lorikeet("keys", "list", "--tenant", "orchard")
    assert key["id"] in listed.out
    assert key["secret"] not in listed.out
    assert lorikeet("keys", "revoke", key["id"], "--tenant", "orchard").code == 0
    assert lorikeet("adapters", "list").code == 3


@pytest.mark.usefixtures("installation")
def test_a_new_keys_secret_is_all_that_standard_output_holds(lorikeet: Commands) -> None:
    ended = lorikeet("keys", "create", "--tenant", "harbour", "--name", "second")
    assert ended.out.startswith("lk_")
    assert ended.out.count("\n") == 1
    assert ended.out.strip() not in ended.err


@pytest.mark.usefixtures("installation")
def test_without_the_token_file_the_administrator_is_told_where_it_is_looked_for(
    lorikeet: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LORIKEET_ADMIN_TOKEN_FILE", str(tmp_path / "nowhere"))
    ended = lorikeet("tenants", "list")
    assert ended.code == 3
    assert "LORIKEET_ADMIN_TOKEN_FILE" in ended.err


def test_the_settings_are_shown_without_passwords(lorikeet: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LORIKEET_DATABASE_URL", "postgresql+psycopg://lorikeet:hunter2@db/lorikeet")
    monkeypatch.setenv("LORIKEET_BROKER_URL", "redis://:hunter2@redis:6379/0")
    for ended in (lorikeet("config", "show"), lorikeet("config", "show", "--json")):
        assert ended.code == 0
        assert "hunter2" not in ended.out
        assert "lorikeet:***@db/lorikeet" in ended.out
        assert ":***@redis" in ended.out


@pytest.mark.parametrize(
    "address",
    [
        "postgresql+psycopg://u:hun/ter2@h/db",
        "postgresql+psycopg://u:hun@ter2@h/db",
        "postgresql+psycopg:///db?host=h&user=u&password=hunter2",
        "postgresql+psycopg://h/db?sslpassword=hunter2&sslmode=require",
    ],
)
def test_passwords_with_odd_characters_and_in_queries_are_left_out_too(
    lorikeet: Commands, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("LORIKEET_DATABASE_URL", address)
    shown = lorikeet("config", "show", "--json").out
    assert "ter2" not in shown
    assert "***" in shown


def test_the_owner_link_signs_in_once(
    lorikeet: Commands, installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LORIKEET_DATABASE_URL", str(installation.context.db.engine.url))
    ended = lorikeet("owner-link", "--admin-url", f"{installation.admin_url}/")
    link = urlsplit(ended.out.strip())
    assert f"{link.scheme}://{link.netloc}" == installation.admin_url
    token = link.query.removeprefix("token=")
    answers = [httpx.post(f"{installation.admin_url}/auth/bootstrap", json={"token": token}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 401]


def test_a_wrong_setting_is_named_and_its_value_is_not_repeated(
    lorikeet: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LORIKEET_API_PORT", "hunter2")
    ended = lorikeet("config", "show")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "LORIKEET_API_PORT" in ended.err
    assert "hunter2" not in ended.err
    monkeypatch.delenv("LORIKEET_API_PORT")
    monkeypatch.setenv("LORIKEET_API_PROT", "8000")
    assert "LORIKEET_API_PROT" in lorikeet("config", "show").err


def test_another_model_gets_its_own_name_unless_one_is_chosen(
    lorikeet: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LORIKEET_MODEL", "org/Some-Model")
    assert json.loads(lorikeet("config", "show", "--json").out)["model_name"] == "some-model"
    monkeypatch.setenv("LORIKEET_MODEL_NAME", "mine")
    assert json.loads(lorikeet("config", "show", "--json").out)["model_name"] == "mine"


def test_the_database_is_prepared_once_and_again(
    lorikeet: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LORIKEET_DATA_DIR", str(tmp_path / "data"))
    assert lorikeet("db", "upgrade").code == 0
    assert lorikeet("db", "upgrade").code == 0
    assert (tmp_path / "data" / "lorikeet.db").exists()


@pytest.mark.usefixtures("installation")
def test_chat_prints_the_answer_alone(lorikeet: Commands) -> None:
    ended = lorikeet("chat", "hello there")
    assert (ended.code, ended.out) == (0, "Hello world.\n")
    ended = lorikeet("chat", "hello", "--model", "nobody")
    assert ended.code == 2
    assert "model_not_found" in ended.err


def test_servers_that_need_an_address_say_which_setting(
    lorikeet: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_text("{}")
    monkeypatch.setenv("LORIKEET_DATA_DIR", str(tmp_path))
    for command, setting in (
        ("gateway", "LORIKEET_ENGINE_ENDPOINT"),
        ("engine", "LORIKEET_ENGINE_ENDPOINT"),
        ("worker", "LORIKEET_ENGINE_ENDPOINT"),
    ):
        ended = lorikeet(command, "--model", tmp_path)
        assert (ended.code, setting in ended.err) == (2, True), ended.err
    monkeypatch.setenv("LORIKEET_ENGINE_ENDPOINT", "ipc:///nowhere")
    ended = lorikeet("worker", "--model", tmp_path)
    assert (ended.code, "LORIKEET_BROKER_URL" in ended.err) == (2, True), ended.err


def test_help_imports_nothing_that_takes_long() -> None:
    script = (
        "import sys; sys.argv = ['lorikeet', 'adapters', 'push', '--help']\n"
        "from lorikeet_platform.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'torch', 'transformers', 'sqlalchemy', 'httpx', 'celery', 'fastapi'} & set(sys.modules)))\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "[]"
