"""Libraries that these tests share: compiling one takes half a minute."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path

import pytest

from lorikeet_engine.ops.native import library
from tests.support.ops_cases import NATIVE_LIBRARY


@pytest.fixture(scope="session")
def portable_library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The same sources for the oldest CPU of this kind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "FLAGS", tuple(flag for flag in library.FLAGS if flag != "-march=native"))
        return library.load_library(tmp_path_factory.mktemp("portable"))


@pytest.fixture
def filled_cache(tmp_path: Path) -> Path:
    """A cache with the library that this process has loaded, as its compilation left it."""
    path = Path(NATIVE_LIBRARY._name)
    for file in (path, path.with_suffix(library.DIGEST_SUFFIX)):
        shutil.copy(file, tmp_path)
    return tmp_path
