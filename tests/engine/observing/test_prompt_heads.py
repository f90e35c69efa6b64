"""How alike prompts are, against a comparison of each with each; and that no more of them is kept than is said."""

from __future__ import annotations

from statistics import fmean, median_low

from hypothesis import given
from hypothesis import strategies as st

from lorikeet_engine.observing.prompt_heads import HEAD_TOKENS, KEPT_OWNERS, KEPT_PROMPTS, Alike, PromptHeads

prompts = st.lists(st.lists(st.sampled_from([1, 2, 300, 70_000]), min_size=1, max_size=12), min_size=1, max_size=30)


def alike(sent: list[list[int]]) -> Alike:
    heads = PromptHeads()
    for prompt in sent:
        heads.add(("anna", ""), prompt)
    ((_, found),) = heads.alike(1, lambda _: 0)
    return found


def common(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@given(prompts)
def test_the_nearest_neighbour_is_found_as_by_comparing_each_with_each(sent: list[list[int]]) -> None:
    found = alike(sent)
    nearest = [max((common(a, b) for j, b in enumerate(sent) if j != i), default=0) for i, a in enumerate(sent)]
    assert found.n_prompts == len(sent)
    assert found.mean_tokens == fmean(map(len, sent))
    assert found.common_tokens == median_low(nearest)
    if found.tokens:
        pairs = {
            frozenset((a[found.common_tokens], b[found.common_tokens]))
            for a in sent
            for b in sent
            if common(a, b) == found.common_tokens < min(len(a), len(b))
        }
        assert frozenset(found.tokens) in pairs


def test_prompts_that_begin_with_a_timestamp_differ_at_their_first_token() -> None:
    assert alike([[time, 8, 9, 10, 11] for time in range(100, 120)])[2:] == (0, (109, 110))


def test_prompts_with_a_common_head_say_where_they_part() -> None:
    found = alike([[7] * 40 + [time] + [8] * 400 for time in range(1000, 1010)])
    assert found.common_tokens == 40
    assert found.tokens is not None
    assert found.tokens[0] != found.tokens[1]


def test_equal_prompts_part_nowhere_and_a_single_one_has_no_neighbour() -> None:
    assert alike([[5] * 600] * 3) == (3, 600, HEAD_TOKENS, None)
    assert alike([[5, 6]]) == (1, 2, 0, None)


def test_only_the_heads_of_the_newest_prompts_are_kept() -> None:
    heads = PromptHeads()
    for owner in range(KEPT_OWNERS + 10):
        for i in range(KEPT_PROMPTS + 5):
            heads.add((f"t{owner}", ""), range(i, i + 3))
    heads.add(("t60", "ab"), range(10_000))
    kept = heads._kept
    assert len(kept) == KEPT_OWNERS
    assert ("t0", "") not in kept
    assert max(map(len, kept.values())) == KEPT_PROMPTS
    assert max(len(prompt.head) for owner in kept.values() for prompt in owner) == 4 * HEAD_TOKENS


def test_owners_are_told_of_in_the_order_of_their_rank() -> None:
    heads = PromptHeads()
    for tenant in ("a", "b", "c"):
        heads.add((tenant, ""), [1, 2])
    ranks = {("a", ""): 5, ("b", ""): 9, ("c", ""): 1}
    assert [whose for whose, _ in heads.alike(2, ranks.__getitem__)] == [("b", ""), ("a", "")]
