"""Secrets of an installation: made once, mode 0600, refused when everybody can read them."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest

from lorikeet_platform.accounts.admin_token import is_admin_token, load_admin_token
from lorikeet_platform.auth.pepper import load_pepper
from lorikeet_platform.auth.secret_file import SecretFileExposed


def test_the_pepper_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    first = load_pepper(tmp_path)
    assert load_pepper(tmp_path) == first
    assert stat.S_IMODE((tmp_path / "pepper.json").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["pepper.json"]


def test_two_starts_at_once_agree_on_one_pepper(tmp_path: Path) -> None:
    peppers: list[bytes] = []
    threads = [threading.Thread(target=lambda: peppers.append(load_pepper(tmp_path).secrets[1])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(peppers) == 8
    assert len(set(peppers)) == 1


def test_a_secret_that_everybody_can_read_is_refused(tmp_path: Path) -> None:
    load_pepper(tmp_path)
    (tmp_path / "pepper.json").chmod(0o644)
    with pytest.raises(SecretFileExposed, match="0600"):
        load_pepper(tmp_path)


def test_an_unknown_pepper_version_matches_nothing(tmp_path: Path) -> None:
    pepper = load_pepper(tmp_path)
    assert pepper.mac("lk_key", 1) != pepper.mac("lk_key", 2)
    assert pepper.secrets[1].hex() not in repr(pepper)


def test_the_administrators_token_is_compared_whole(tmp_path: Path) -> None:
    token = load_admin_token(tmp_path)
    assert is_admin_token(token, token)
    assert not any(is_admin_token(sent, token) for sent in ("", token[:-1], token + "x", token.upper()))
