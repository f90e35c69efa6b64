"""Names for the busiest: bounded, stable, and nothing that was counted is lost or counted twice."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from lorikeet_engine.observing.busiest import FORMER, MAX_CANDIDATES, OTHER, TERM_S, Busiest, Split

SIZE = 3
actions = st.lists(
    st.one_of(
        st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 5)),
        st.just("next term"),
    ),
    max_size=120,
)


@dataclass
class Tally:
    n: int = 0

    def merge(self, other: Tally) -> None:
        self.n += other.n


class Counted:
    """What somebody does is counted in two splits; the time is the test's."""

    def __init__(self) -> None:
        self.splits: tuple[Split[str, Tally], ...] = (Split(Tally), Split(Tally))
        self.busiest: Busiest[str] = Busiest(SIZE, self.splits)
        self.now = 0.0
        self.busiest.tick(self.now)

    def count(self, key: str, n: int) -> None:
        self.busiest.see(key, n)
        for factor, split in enumerate(self.splits, start=1):
            split.of(key).n += n * factor

    def end_term(self) -> None:
        self.now += TERM_S
        self.busiest.tick(self.now)

    def labels(self) -> dict[str, int]:
        return {label: tally.n for label, tally in self.splits[0].labelled(str)}


@given(actions)
def test_labels_add_up_to_everything_and_no_label_counts_backwards(done: list[tuple[str, int] | str]) -> None:
    counted, total = Counted(), 0
    for action in done:
        before, names = counted.labels(), set(counted.busiest.names)
        if isinstance(action, str):
            counted.end_term()
        else:
            counted.count(*action)
            total += action[1]
        after = counted.labels()
        assert sum(after.values()) == total
        assert len(counted.busiest.names) <= SIZE
        for split, factor in zip(counted.splits, (1, 2), strict=True):
            assert list(split.named) == list(counted.busiest.names)
            assert sum(tally.n for _, tally in split.labelled(str)) == factor * total
        stayed = names & set(counted.busiest.names) | {OTHER, FORMER}
        assert all(after[label] >= before[label] for label in stayed)
        if isinstance(action, str):
            assert after[OTHER] == before[OTHER], "a change of names looked like work"
        else:
            assert after[FORMER] == before[FORMER]


@given(actions)
def test_a_new_term_names_those_that_did_most_in_the_last_one(done: list[tuple[str, int] | str]) -> None:
    counted = Counted()
    in_term: dict[str, int] = {}
    for action in [*done, "next term"]:
        if not isinstance(action, str):
            counted.count(*action)
            in_term[action[0]] = in_term.get(action[0], 0) + action[1]
            continue
        held = set(counted.busiest.names)
        counted.end_term()
        names = set(counted.busiest.names)
        for name in names:
            assert all(in_term.get(name, 0) >= in_term.get(loser, 0) for loser in {*in_term, *held} - names)
        for loser in held - names:
            assert all(in_term.get(winner, 0) > in_term.get(loser, 0) for winner in names - held)
        in_term = {}


def test_the_first_to_come_have_names_at_once_and_keep_them_until_the_term_ends() -> None:
    counted = Counted()
    for key, n in (("a", 1), ("b", 1), ("c", 1), ("d", 100)):
        counted.count(key, n)
    assert list(counted.busiest.names) == ["a", "b", "c"]
    counted.busiest.tick(counted.now + TERM_S - 1)
    assert counted.labels()[OTHER] == 100
    counted.end_term()
    assert set(counted.busiest.names) == {"a", "b", "d"}
    assert counted.labels() == {"a": 1, "b": 1, "d": 0, OTHER: 100, FORMER: 1}


def test_nobody_loses_a_name_to_silence() -> None:
    counted = Counted()
    for key in "abc":
        counted.count(key, 1)
    for _ in range(3):
        counted.end_term()
    assert list(counted.busiest.names) == ["a", "b", "c"]


def test_so_many_candidates_are_remembered_and_no_more() -> None:
    busiest: Busiest[int] = Busiest(SIZE, ())
    for key in range(MAX_CANDIDATES + 100):
        busiest.see(key, 1)
    assert len(busiest._done) == MAX_CANDIDATES
    busiest.see(5, 1)
    assert busiest._done[5] == 2
