"""Two places for one set of tests: SQLite in this process, and Postgres, Redis, two gateways and a worker."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.computed_model import model_to_compute_on
from tests.support.platform_parts import Tenant
from tests.support.served_model import ServedModel, model_to_talk_to
from tests.support.stack import Stack, running_stack
from tests.support.stack_place import Place, in_process, on_stack


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> ServedModel:
    return model_to_talk_to(tmp_path_factory.mktemp("model"))


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """For sockets: their addresses have at most 107 bytes."""
    with a_short_folder() as folder:
        yield folder


@contextmanager
def a_short_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="lk-") as folder:
        Path(folder).chmod(0o755)  # Postgres may be another user
        yield Path(folder)


@pytest.fixture(scope="session")
def computed_model(tmp_path_factory: pytest.TempPathFactory) -> ServedModel:
    """One that a worker can certify adapters with."""
    return model_to_compute_on(tmp_path_factory.mktemp("computed-model"))


@pytest.fixture(scope="session")
def stack(computed_model: ServedModel) -> Iterator[Stack]:
    with a_short_folder() as folder, running_stack(folder, computed_model) as running:
        yield running


@pytest.fixture(scope="session", params=["in_process", pytest.param("stack", marks=pytest.mark.slow)])
def installation(request: pytest.FixtureRequest, model: ServedModel) -> Iterator[Place]:
    if request.param == "stack":
        with on_stack(request.getfixturevalue("stack")) as place:
            yield place
        return
    with a_short_folder() as folder, in_process(folder, model) as place:
        yield place


@pytest.fixture
def place(installation: Place) -> Iterator[Place]:
    """The installation, with an engine that answers as it does at first."""
    installation.engine.forget()
    yield installation
    installation.engine.forget()


@pytest.fixture
def ours(place: Place) -> Tenant:
    return place.tenant()


@pytest.fixture
def theirs(place: Place) -> Tenant:
    """Another tenant, whose things are none of ours."""
    return place.tenant()
