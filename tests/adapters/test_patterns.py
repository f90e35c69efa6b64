"""Keys of rank_pattern and alpha_pattern mean here exactly what they mean to the installed PEFT."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peft.utils.other import get_pattern_key

from lorikeet_adapters.config.patterns import LiteralPattern, RegularPattern, limited_time, parse_pattern
from lorikeet_adapters.errors import AdapterRejected
from tests.support.lora_files import validate_folder, write_files

PATHS = [
    f"{prefix}layers.{layer}.{module}"
    for prefix in ("model.", "", "language_model.model.")
    for layer in (0, 1, 10, 11)
    for module in ("self_attn.q_proj", "self_attn.k_proj", "mlp.up_proj")
]
EXPRESSIONS = [
    "(q|v)_proj",
    ".*q_proj",
    r"layers\.\d+\.self_attn\.q_proj",
    r"layers\.[01]\..*",
    "q_proj$",
    "q_proj|k_proj",
    "a)|(.*up_proj",
    "model.layers.1.*",
    "",
    "(?i:Q_PROJ)",
    r"\w+_proj",
    "$",
    "(?=q)q_proj",
]


@given(
    st.one_of(
        st.sampled_from(PATHS).flatmap(lambda path: st.integers(0, len(path) - 1).map(lambda cut: path[cut:])),
        st.text("layers.01_qkup", min_size=1, max_size=12),
    ),
    st.booleans(),
    st.booleans(),
)
def test_plain_keys_match_exactly_what_peft_matches(key: str, anchored: bool, escaped: bool) -> None:
    key = ("^" if anchored else "") + (key.replace(".", r"\.") if escaped else key)
    pattern = parse_pattern("rank_pattern", key)
    assert isinstance(pattern, LiteralPattern)
    for path in PATHS:
        assert pattern.matches(path) == (get_pattern_key([key], path) == key), (key, path)


@pytest.mark.parametrize("key", EXPRESSIONS)
def test_expressions_match_exactly_what_peft_matches(key: str) -> None:
    pattern = parse_pattern("rank_pattern", key)
    assert isinstance(pattern, RegularPattern)
    for path in PATHS:
        assert pattern.matches(path) == (get_pattern_key([key], path) == key), (key, path)


UNREADABLE = ["(", "*", "a{99999999999}", "(?P<n>a)(?P<n>b)", "[", "\\"]


@pytest.mark.parametrize(
    ("field", "key"),
    [
        *[(field, key) for field in ("rank_pattern", "target_modules", "exclude_modules") for key in UNREADABLE],
        # Sound at the start of an expression, but PEFT puts a key behind others.
        ("alpha_pattern", "(?i)q_proj"),
    ],
)
def test_v17_an_expression_that_python_cannot_read_is_refused_with_its_field(
    field: str, key: str, tmp_path: Path
) -> None:
    value: Any = key if field.endswith("_modules") else {key: 4}
    with pytest.raises(AdapterRejected) as caught:
        validate_folder(write_files(tmp_path, **{field: value}).config.parent)
    assert (caught.value.code, caught.value.param) == ("pattern_not_allowed", field)


@pytest.mark.parametrize(
    "changes",
    [
        {"target_modules": r"((\w+\.?)+)+!"},
        {"exclude_modules": r"((\w+\.?)+)+!"},
        {"rank_pattern": {r"((\w+\.?)+)+!": 4}},
        {"alpha_pattern": {r"((\w+\.?)+)+!": 4}},
    ],
)
def test_v17_an_expression_that_never_ends_is_refused_in_time(
    changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lorikeet_adapters.validate.limited_time", lambda: limited_time(0.2))
    began = time.process_time()
    with pytest.raises(AdapterRejected) as caught:
        validate_folder(write_files(tmp_path, **changes).config.parent)
    assert caught.value.code == "pattern_not_allowed"
    assert time.process_time() - began < 5


def test_the_limit_leaves_nothing_behind_and_does_no_harm_in_another_thread() -> None:
    with limited_time(0.05):
        pass
    ended = time.process_time() + 0.1
    while time.process_time() < ended:
        pass
    done: list[bool] = []

    def work() -> None:
        with limited_time(5):
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]
