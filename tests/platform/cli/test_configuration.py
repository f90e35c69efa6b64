"""What a server is started with: options before the environment, and a wrong one named."""

from __future__ import annotations

import pytest

from lorikeet_platform.cli.configuration import load_settings
from lorikeet_platform.cli.console import CommandFailed


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
