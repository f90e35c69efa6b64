"""Lanes and fences on a device that carries work out late and in any order the lanes allow."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from lorikeet_engine.execution.kv_cache import KvCache
from lorikeet_engine.execution.streams.fences import PlaceFences, SpanFences
from lorikeet_engine.execution.streams.lanes import PASSED, HostLanes, Lane
from lorikeet_engine.execution.streams.words import PinnedFeed
from lorikeet_engine.model_spec import spec_from_config
from lorikeet_engine.scheduling.plan import BlockCopy
from tests.support.asynchronous_device import LateLanes
from tests.support.tiny_models import CONFIGS

SEEDS = range(30)
SPEC = spec_from_config({**CONFIGS["llama"].to_dict(), "architectures": ["LlamaForCausalLM"]}, eos=2)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_lane_keeps_its_order(seed: int) -> None:
    lanes, seen = LateLanes(seed), list[Any]()
    for number in range(10):
        lanes.run(Lane.COMPUTE, partial(seen.append, number))
    lanes.mark(Lane.COMPUTE).wait()
    assert seen == list(range(10))


@pytest.mark.parametrize("seed", SEEDS)
def test_work_waits_for_another_lanes_mark(seed: int) -> None:
    lanes, seen = LateLanes(seed), list[Any]()
    lanes.run(Lane.LOAD, lambda: seen.append("load"))
    lanes.wait(Lane.COMPUTE, lanes.mark(Lane.LOAD))
    lanes.run(Lane.COMPUTE, lambda: seen.append("compute"))
    lanes.mark(Lane.COMPUTE).wait()
    assert seen == ["load", "compute"]


def test_without_a_fence_the_device_is_caught_in_the_other_order() -> None:
    """The device of these tests is worth something only if it shows what a missing fence does."""
    orders = set()
    for seed in SEEDS:
        lanes, seen = LateLanes(seed), list[Any]()
        lanes.run(Lane.LOAD, partial(seen.append, "load"))
        lanes.run(Lane.COMPUTE, partial(seen.append, "compute"))
        lanes.finish()
        orders.add(tuple(seen))
    assert len(orders) == 2


@pytest.mark.parametrize("seed", SEEDS)
def test_a_span_is_read_after_the_copies_that_meet_it(seed: int) -> None:
    lanes, memory = LateLanes(seed), torch.zeros(10)
    fences = SpanFences(lanes)
    for first in (0, 4, 7):
        lanes.run(Lane.LOAD, partial(memory[first : first + 3].fill_, 1 + first))
        fences.put(first, 3, lanes.mark(Lane.LOAD))
    read: list[list[float]] = []
    fences.pass_on(Lane.COMPUTE, 6, 2)
    lanes.run(Lane.COMPUTE, lambda: read.append(memory[4:8].tolist()))
    lanes.mark(Lane.COMPUTE).wait()
    assert read == [[5, 5, 5, 8]]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_place_is_overwritten_after_it_was_read(seed: int) -> None:
    lanes, block, slot = LateLanes(seed), torch.ones(1), torch.zeros(1)
    fences = PlaceFences(lanes)
    lanes.run(Lane.SWAP, lambda: slot.copy_(block))
    fences.put([3], lanes.mark(Lane.SWAP))
    fences.pass_on(Lane.COMPUTE, [2, 3, 4])
    lanes.run(Lane.COMPUTE, lambda: block.fill_(7))
    lanes.finish()
    assert slot == 1


def test_places_nobody_works_on_cost_no_wait_and_passed_fences_are_forgotten() -> None:
    lanes = LateLanes(0, eagerness=0.0)
    spans, places = SpanFences(lanes), PlaceFences(lanes)
    lanes.run(Lane.LOAD, lambda: None)
    mark = lanes.mark(Lane.LOAD)
    spans.put(10, 5, mark)
    places.put([1, 2], mark)
    spans.pass_on(Lane.COMPUTE, 15, 100)
    places.pass_on(Lane.COMPUTE, [3])
    assert lanes.waited == []
    places.pass_on(Lane.COMPUTE, [1, 2])
    assert lanes.waited == [(Lane.COMPUTE, mark)]
    mark.wait()
    spans.pass_on(Lane.COMPUTE, 0, 1)
    places.pass_on(Lane.COMPUTE, [0])
    assert (len(spans), len(places)) == (0, 0)


def test_where_the_host_computes_nothing_is_ever_under_way() -> None:
    lanes, seen = HostLanes(), list[int]()
    lanes.run(Lane.SWAP, lambda: seen.append(1))
    assert seen == [1]
    assert lanes.mark(Lane.SWAP).is_passed()
    lanes.wait(Lane.COMPUTE, PASSED)
    PASSED.wait()


@pytest.mark.parametrize("seed", SEEDS)
def test_words_arrive_as_they_were_written_however_many_are_on_their_way(seed: int) -> None:
    lanes = LateLanes(seed, eagerness=0.1)
    feed = PinnedFeed(lanes, "cpu")
    places = [feed.words(3 + step % 2) for step in range(6)]
    for step, words in enumerate(places):
        host = feed.host(words)
        host.fill_(step)
        feed.send(host, words)
    lanes.finish()
    assert [set(words.tolist()) for words in places] == [{step} for step in range(6)]


@pytest.mark.parametrize("seed", SEEDS)
def test_blocks_are_swapped_between_the_steps_that_write_and_read_them(seed: int) -> None:
    """Nothing here waits for the device between the steps, so it is the lanes' fences alone that keep the order."""
    lanes = LateLanes(seed)
    cache = KvCache(SPEC, n_blocks=4, block_size=4, dtype=torch.float32, n_host_slots=2, lanes=lanes)
    page, read = cache.layers[0].k, list[float]()
    page[2] = 3.0

    def read_block() -> None:
        read.append(float(page[2].mean()))

    lanes.run(Lane.COMPUTE, partial(page[1].fill_, 5.0))
    cache.swap_out([BlockCopy(1, 0)])
    cache.before_use([1])
    lanes.run(Lane.COMPUTE, partial(page[1].fill_, 7.0))
    lanes.run(Lane.COMPUTE, read_block)
    cache.swap_in([BlockCopy(0, 2)])
    cache.before_use([2])
    lanes.run(Lane.COMPUTE, read_block)
    lanes.finish()
    assert read == [3.0, 5.0]
    assert float(cache.host_layers[0].k[0].mean()) == 5.0
