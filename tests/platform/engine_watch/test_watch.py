"""The watch beside the gateway: what it remembers, what a gap is, and that it disturbs nobody."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from lorikeet_engine.client import EngineClient, EngineDesign, EngineStats, PromptHeads, Steps
from lorikeet_engine.errors import EngineUnavailable
from lorikeet_engine.stats import StepSample
from lorikeet_platform.engine_watch.watch import EngineWatch
from tests.support.engine_figures import engine_design, resident
from tests.support.platform_parts import FakeClock
from tests.support.seen_engine import a_step, heads, quiet_stats


@dataclass
class Told(EngineClient):
    """An engine that says what a test told it."""

    uptime_s: float = 10.0
    figures: dict[str, Any] = field(default_factory=dict)
    made: list[StepSample] = field(default_factory=list)
    is_up: bool = True
    error: Exception | None = None
    asked: list[str] = field(default_factory=list)

    async def stats(self, *, names_adapters: bool = False) -> EngineStats:
        if self.error:
            raise self.error
        if not self.is_up:
            raise EngineUnavailable("away")
        unnamed: dict[str, Any] = {} if names_adapters else {"adapters": []}
        return quiet_stats(**{"uptime_s": self.uptime_s} | self.figures | unnamed)

    async def steps(self, after_s: float = float("-inf")) -> Steps:
        return Steps(0, self.uptime_s, [step for step in self.made if step.end_s > after_s])

    async def design(self) -> EngineDesign:
        self.asked.append("design")
        return engine_design()

    async def prompts(self) -> list[PromptHeads]:
        self.asked.append("prompts")
        return [heads(3, (1, 2))]


@dataclass
class Place:
    engine: Told
    watch: EngineWatch
    clock: FakeClock

    def sample(self, n: int = 1, **figures: Any) -> None:
        for _ in range(n):
            self.engine.uptime_s += 5.0
            self.clock.advance(5.0)
            self.engine.figures |= figures
            asyncio.run(self.watch.sample())


@pytest.fixture
def place() -> Place:
    engine, clock = Told(), FakeClock()
    return Place(engine, EngineWatch(engine, clock), clock)


def test_a_window_is_the_difference_of_two_readings_as_long_as_was_asked_for(place: Place) -> None:
    assert place.watch.window() is None
    for n in range(10):
        place.sample(generated_tokens_total=100 * n)
    window = place.watch.window(20.0)
    assert window is not None
    assert (window.seconds, window.generated_tokens, len(window.readings)) == (20.0, 400, 5)
    whole = place.watch.window()
    assert whole is not None
    assert (whole.seconds, whole.generated_tokens) == (45.0, 900)


def test_five_minutes_are_remembered(place: Place) -> None:
    place.sample(80)
    window = place.watch.window(10_000.0)
    assert window is not None
    assert window.seconds == 300.0


def test_steps_are_asked_for_once_and_belong_to_their_window(place: Place) -> None:
    for _ in range(4):
        place.engine.made += [a_step(end_s=place.engine.uptime_s + 4.0)] * 3
        place.sample()
    whole, newest = place.watch.window(), place.watch.window(5.0)
    assert whole is not None
    assert newest is not None
    assert (len(whole.steps), len(newest.steps)) == (9, 3)  # those before the first reading are in no window


def test_an_engine_that_is_away_is_a_gap(place: Place) -> None:
    place.sample(3)
    place.engine.is_up = False
    place.sample()
    assert place.watch.is_away
    assert place.watch.away_since == pytest.approx(place.clock.now / 1e6)
    assert place.watch.window() is None
    place.engine.is_up = True
    place.sample()
    window = place.watch.window()
    assert window is not None
    assert (window.seconds, place.watch.is_away, place.watch.away_since) == (20.0, False, None)
    assert place.watch.n_engines == 1


def test_an_engine_that_was_started_anew_begins_a_new_window_and_is_asked_for_its_design_again(place: Place) -> None:
    place.sample(5, generated_tokens_total=1000)
    place.engine.uptime_s = 1.0
    place.sample(generated_tokens_total=3)
    assert place.watch.window() is None
    place.sample(generated_tokens_total=8)
    window = place.watch.window()
    assert window is not None
    assert window.generated_tokens == 5
    assert (place.engine.asked.count("design"), place.watch.n_engines) == (2, 2)


def test_an_engine_that_started_and_ran_longer_than_the_one_before_is_another_one_all_the_same(place: Place) -> None:
    place.sample(2)
    place.engine.is_up = False
    place.sample(60)
    place.engine.is_up, place.engine.uptime_s = True, 250.0
    place.sample()
    assert place.watch.window() is None
    place.sample()
    assert place.watch.window() is not None


def test_prompts_are_compared_now_and_then_only(place: Place) -> None:
    place.sample(7)
    assert (place.engine.asked.count("prompts"), place.engine.asked.count("design")) == (2, 1)
    assert len(place.watch.prompts) == 1


def test_only_the_newest_reading_names_every_adapter(place: Place) -> None:
    place.sample(3, adapters=[resident(f"{i}") for i in range(50)])
    window = place.watch.window()
    assert window is not None
    assert (len(window.before.adapters), len(window.after.adapters)) == (0, 50)


def test_a_watch_that_fails_says_so_and_goes_on(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []

    async def breaks() -> None:
        heard.append("first")
        raise ValueError("a listener's own")

    async def listens() -> None:
        heard.append("second")

    place.watch.subscribe(breaks)
    place.watch.subscribe(listens)
    place.engine.error = TypeError("a message that nobody expected")
    place.sample()
    assert place.watch.is_away
    place.engine.error = None
    place.sample(2)
    assert place.watch.window() is not None
    assert heard == ["first", "second"] * 3
    assert "figures could not be read" in caplog.text


def test_sampling_ends_when_it_is_cancelled(place: Place) -> None:
    async def run() -> None:
        watching = asyncio.create_task(EngineWatch(place.engine, every_s=0.001).run())
        await asyncio.sleep(0.05)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        assert watching.cancelled()

    asyncio.run(run())
