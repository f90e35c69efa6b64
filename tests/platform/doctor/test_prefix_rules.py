"""Why prompts find nothing in the prefix cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from lorikeet_engine.stats import PromptHeads
from lorikeet_platform.doctor.examined import Seen, Surroundings
from lorikeet_platform.doctor.rules.prefixes import (
    dynamic_prompt_head,
    prefix_alignment,
    prefix_caching_off,
    prefix_evicted,
    prefix_split,
)
from tests.support.seen_engine import heads, prefix, seen

TEXTS = {1: "07", 2: "12", 3: "cat", 4: " dog", 5: "9f", 6: "ac", 7: ":3"}
AROUND = Surroundings(decode=lambda tokens: TEXTS[tokens[0]])
MISSED = {"prefix": prefix(1000, 0)}


def looked_up(found: PromptHeads, *, hit: int = 0, queried: int = 1000, **options: Any) -> Seen:
    return seen({"prefix": prefix(queried, hit)}, prompts=[found], around=AROUND, **options)


def test_a_time_at_the_head_of_prompts_is_found_with_its_place_and_both_tokens() -> None:
    finding = dynamic_prompt_head(looked_up(heads(3, (1, 2))))
    assert finding is not None
    evidence = {item.label: item.value for item in finding.evidence}
    assert evidence["first different token"] == "position 3"
    assert evidence["there"] == "'07' in one prompt, '12' in another"
    assert evidence["hit rate"] == "0.0 % of 1,000 tokens"
    assert evidence["compared"] == "16 prompts, 64 tokens on average"
    assert "first" in finding.remedy


@pytest.mark.parametrize(("tokens", "is_found"), [((5, 6), True), ((7, 1), True), ((3, 4), False), ((1, 3), False)])
def test_only_times_numbers_and_ids_are_called_dynamic(tokens: tuple[int, int], is_found: bool) -> None:
    assert (dynamic_prompt_head(looked_up(heads(2, tokens))) is not None) is is_found


@pytest.mark.parametrize(
    "healthy",
    [
        looked_up(heads(4, (1, 2))),  # a whole block in common
        looked_up(heads(3, (1, 2), n=7)),  # too few prompts
        looked_up(heads(3, (1, 2), mean=8.0)),  # prompts of two blocks have little to find
        looked_up(heads(3, (1, 2)), hit=51),
        looked_up(heads(3, None)),  # one is the other's beginning
        looked_up(heads(3, (1, 2)), knobs={"enable_prefix_caching": False}),
        looked_up(heads(3, (1, 2)), queried=0),
    ],
)
def test_heads_of_prompts_are_fine_where_something_is_found_or_nothing_could_be(healthy: Seen) -> None:
    assert dynamic_prompt_head(healthy) is None


def test_what_was_found_before_the_window_does_not_hide_what_is_missed_in_it() -> None:
    before = {"prefix": prefix(100_000, 90_000)}
    after = {"prefix": prefix(101_000, 90_000)}
    assert dynamic_prompt_head(seen(after, before=before, prompts=[heads(3, (1, 2))], around=AROUND)) is not None


@pytest.mark.parametrize(
    ("common", "mean", "setting"),
    [
        (24, 40.0, "LORIKEET_ENGINE__BLOCK_SIZE=16"),
        (31, 40.0, "LORIKEET_ENGINE__BLOCK_SIZE=16"),
        (32, 40.0, None),  # a whole block
        (15, 40.0, None),  # no block is so small
        (24, 100.0, None),  # a small part of the prompts
    ],
)
def test_prompts_that_share_less_than_a_block_are_told_a_smaller_one(
    common: int, mean: float, setting: str | None
) -> None:
    finding = prefix_alignment(looked_up(heads(common, (3, 4), mean=mean), block_size=32))
    assert (finding and finding.setting) == setting


@pytest.mark.parametrize(("common", "is_found"), [(40, True), (3, False)])
def test_a_cache_that_is_off_is_missed_where_prompts_share_blocks(common: int, is_found: bool) -> None:
    off = looked_up(heads(common, (3, 4)), knobs={"enable_prefix_caching": False})
    finding = prefix_caching_off(off)
    assert (finding is not None) is is_found
    assert prefix_caching_off(looked_up(heads(common, (3, 4)))) is None
    if finding:
        assert finding.setting == "LORIKEET_ENGINE__ENABLE_PREFIX_CACHING=true"
        assert finding.cost.share == pytest.approx(40 / 64)


@pytest.mark.parametrize(("evicted", "cold", "is_found"), [(8, 8, True), (7, 0, False), (8, 9, False)])
def test_evicted_prefixes_are_found_where_most_misses_are_theirs(evicted: int, cold: int, is_found: bool) -> None:
    finding = prefix_evicted(seen({"prefix": prefix(1000, 100, evicted=evicted, cold=cold)}))
    assert (finding is not None) is is_found


def test_a_larger_pool_is_suggested_only_where_memory_is_left() -> None:
    missed = {"prefix": prefix(1000, 100, evicted=20)}
    for left, has_setting in ((1 << 30, True), (100, False)):
        finding = prefix_evicted(seen(missed, memory=[("KV pool", 4096), ("left", left)]))
        assert finding is not None
        assert (finding.setting is not None) is has_setting


@pytest.mark.parametrize(("misses", "word"), [({"salt": 20}, "salt"), ({"adapter_version": 20}, "adapter")])
def test_equal_prompts_under_another_salt_or_version_are_found(misses: dict[str, int], word: str) -> None:
    finding = prefix_split(seen({"prefix": prefix(1000, 0, cold=3, **misses)}))
    assert finding is not None
    assert word in finding.title


@pytest.mark.parametrize("rule", [prefix_evicted, prefix_split])
def test_a_cache_that_mostly_hits_has_nothing_to_answer_for(rule: Any) -> None:
    assert rule(seen({"prefix": prefix(1000, 600, evicted=20, salt=20)})) is None
    assert rule(seen(MISSED)) is None


def test_every_rule_about_prefixes_is_silent_without_prompts() -> None:
    rules: Sequence[Any] = (dynamic_prompt_head, prefix_alignment, prefix_caching_off, prefix_evicted, prefix_split)
    assert [rule(seen()) for rule in rules] == [None] * 5
