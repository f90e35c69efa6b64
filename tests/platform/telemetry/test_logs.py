"""The structured log: its form, and what it drops."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from lorikeet_platform.telemetry.logs import FORBIDDEN, configure_logging


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    configured = structlog.get_config()
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.configure(**configured)


def fail_with_a_prompt_in_a_local_variable() -> None:
    prompt = "a secret prompt"
    raise ValueError(len(prompt))


def test_machines_get_one_json_object_a_line() -> None:
    stream = io.StringIO()
    configure_logging(stream=stream)
    structlog.get_logger().info("request", route="/v1/models", status=200)
    logging.getLogger("library").warning("slow %s", "disk")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (first["event"], first["route"], first["status"], first["level"]) == ("request", "/v1/models", 200, "info")
    assert (second["event"], second["logger"], second["level"]) == ("slow disk", "library", "warning")


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_fields_that_could_hold_content_or_secrets_are_dropped_by_name(stream: io.StringIO) -> None:
    configure_logging(stream=stream)
    structlog.get_logger().info("request", **dict.fromkeys(FORBIDDEN, "lk_secret"))
    assert "lk_secret" not in stream.getvalue()


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_a_traceback_shows_no_local_variables(stream: io.StringIO) -> None:
    configure_logging(stream=stream)
    try:
        fail_with_a_prompt_in_a_local_variable()
    except ValueError:
        structlog.get_logger().exception("failed")
        logging.getLogger("library").exception("failed")
    assert "ValueError" in stream.getvalue()
    assert "a secret prompt" not in stream.getvalue().replace('prompt = "a secret prompt"', "")
