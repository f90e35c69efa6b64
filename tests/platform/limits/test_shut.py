"""A limit of 0 on what may wait: nothing is let through, and nobody is told to come back."""

from __future__ import annotations

import pytest

from lorikeet_platform.limits.effective import Figures
from tests.platform.limits.test_gate import Gate, caller

NOTHING_WAITS: Figures = {"queue_depth": (0, None)}


@pytest.mark.parametrize("of_key", [False, True])
def test_where_nothing_may_wait_nothing_is_let_in_and_asking_again_does_not_help(of_key: bool) -> None:
    gate = Gate()
    refused = gate.refusal(lambda: gate.gate.enter(caller({}, NOTHING_WAITS) if of_key else caller(NOTHING_WAITS)))
    assert (refused.code, refused.kind.status) == ("queue_limit_exceeded", 429)
    assert (refused.is_retryable, refused.retry_after_ms) == (False, None)
    assert f"the {'key' if of_key else 'tenant'}'s limit is 0" in refused.message
    assert refused.headers["x-ratelimit-limit-requests"]
    assert gate.decisions()['{decision="refused",dimension="queue_depth"}'] == 1
