"""What requests have used: who claims it, when it is offered, and what of it is noted for the next engine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from lorikeet_engine.outbox.book import NOTED_EVERY_S, NOTED_TOKENS, Book, Note, Notebook, Use
from lorikeet_engine.outbox.journal import Journal

UNCLAIMED_S = 30.0


@dataclass
class Notes:
    """A notebook in memory."""

    before: Sequence[Note] = ()
    batches: list[Sequence[Note]] = field(default_factory=list)
    late: set[str] = field(default_factory=set)  # whose notes are not safe yet
    is_closed: bool = False

    def restored(self) -> Sequence[Note]:
        return self.before

    def write(self, notes: Sequence[Note]) -> None:
        assert notes
        self.batches.append(notes)

    def unwritten(self) -> set[str]:
        return self.late

    def close(self) -> None:
        self.is_closed = True

    def left(self) -> dict[str, Note]:
        """What an engine that began now would be told."""
        last = {note.request_id: note for note in (*self.before, *(note for batch in self.batches for note in batch))}
        return {name: note for name, note in last.items() if note.state != "settled"}


def book_of(notes: Notebook | None = None) -> Book:
    return Book(notes, unclaimed_after_s=UNCLAIMED_S, now=0.0)


def opened(book: Book, name: str = "r", *, owner: str = "gateway", n_answers: int = 1) -> Use:
    return book.open(name, tenant="anna", owner=owner, n_prompt=5, n_answers=n_answers)


def count(book: Book, use: Use, n: int) -> None:
    for _ in range(n):
        book.count_token(use)


def names(uses: Sequence[Use]) -> list[str]:
    return [use.request_id for use in uses]


def test_a_request_ends_with_its_last_answer_and_is_its_clients_until_it_was_silent_too_long() -> None:
    book = book_of()
    use = opened(book, n_answers=2)
    count(book, use, 3)
    book.end_answer(use, 1.0)
    assert [each.state for each in book.known(["r"])] == ["running"]
    book.end_answer(use, 2.0)
    assert [each.state for each in book.known(["r"])] == ["ended"]
    assert book.unclaimed(2.0 + UNCLAIMED_S - 0.1) == []
    assert names(book.unclaimed(2.0 + UNCLAIMED_S)) == ["r"]
    book.settle(["r", "r", "unknown"])
    assert book.unclaimed(99.0) == []
    assert len(book) == 0


def test_the_prompt_counts_from_the_first_token_on() -> None:
    book = book_of()
    use = opened(book)
    use.n_cached = 4
    assert (use.prompt_tokens, use.cached_tokens, use.completion_tokens) == (0, 0, 0)
    count(book, use, 1)
    assert (use.prompt_tokens, use.cached_tokens, use.completion_tokens) == (5, 4, 1)


def test_what_a_client_leaves_is_noted_with_the_next_turn_and_offered_then() -> None:
    notes = Notes()
    book = book_of(notes)
    mine, other = opened(book, "mine", owner="gone"), opened(book, "other")
    for use in (mine, other):
        count(book, use, 2)
        book.end_answer(use, 0.1)
    book.turn(0.2)
    assert notes.batches == []
    book.leave("gone")
    book.turn(0.2)
    assert Note("mine", "anna", "ended", 5, 0, 2) in notes.batches[0]
    assert names(book.unclaimed(0.2)) == ["mine"]


def test_nothing_is_offered_before_its_last_figures_would_survive_a_crash() -> None:
    """Or it is billed by these, and the next engine offers what it had noted before."""
    notes = Notes()
    book = book_of(notes)
    use = opened(book, owner="gone")
    count(book, use, NOTED_TOKENS)
    book.turn(0.1)
    count(book, use, 40)
    book.end_answer(use, 0.2)
    book.leave("gone")
    assert book.unclaimed(0.2) == []
    notes.late.add("r")
    book.turn(0.3)
    assert book.unclaimed(0.3) == []
    notes.late.clear()
    assert names(book.unclaimed(0.3)) == ["r"]
    assert notes.left()["r"].completion_tokens == NOTED_TOKENS + 40


def test_what_has_no_token_or_no_notebook_has_nothing_to_wait_for() -> None:
    for book, n_tokens in ((book_of(Notes()), 0), (book_of(), 2)):
        use = opened(book, owner="gone")
        count(book, use, n_tokens)
        book.end_answer(use, 0.1)
        book.leave("gone")
        assert names(book.unclaimed(0.1)) == ["r"]


def test_what_nobody_settles_keeps_nothing_else_from_being_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lorikeet_engine.outbox.book.MOST_OFFERED", 2)
    book = book_of()
    for name in ("a", "b", "c", "d", "e"):
        book.end_answer(opened(book, name, owner="gone"), 0.1)
    book.leave("gone")
    assert [names(book.unclaimed(0.1)) for _ in range(3)] == [["a", "b"], ["c", "d"], ["e", "a"]]


def test_progress_is_noted_once_a_second_or_after_so_many_tokens_of_one_request_all_in_one_batch() -> None:
    notes = Notes()
    book = book_of(notes)
    one, two, idle = opened(book, "one"), opened(book, "two"), opened(book, "idle")
    count(book, one, NOTED_TOKENS - 1)
    count(book, two, 1)
    book.turn(0.9 * NOTED_EVERY_S)
    assert notes.batches == []
    count(book, one, 1)
    book.turn(0.9 * NOTED_EVERY_S)
    assert [set(batch) for batch in notes.batches] == [
        {Note("one", "anna", "running", 5, 0, NOTED_TOKENS), Note("two", "anna", "running", 5, 0, 1)}
    ]
    book.turn(1.5 * NOTED_EVERY_S)
    count(book, two, 1)
    book.turn(1.95 * NOTED_EVERY_S)
    assert notes.batches[1:] == [[Note("two", "anna", "running", 5, 0, 2)]]
    assert idle.noted_tokens == 0


def test_what_is_settled_before_it_was_noted_never_reaches_the_disk_and_what_was_is_taken_back() -> None:
    notes = Notes()
    book = book_of(notes)
    quick, slow = opened(book, "quick"), opened(book, "slow")
    count(book, slow, 1)
    book.turn(1.0)
    for use in (quick, slow):
        count(book, use, 2)
        book.end_answer(use, 1.1)
    book.settle(["quick", "slow"])
    book.turn(2.5)
    assert notes.batches[1:] == [[Note("slow", "anna", "settled")]]
    assert notes.left() == {}


def test_a_running_request_that_is_settled_is_gone_when_it_ends() -> None:
    book = book_of()
    use = opened(book)
    book.settle(["r"])
    count(book, use, 1)
    book.end_answer(use, 1.0)
    assert len(book) == 0


def test_after_a_restart_the_unfinished_are_lost_the_ended_are_ended_and_their_clients_have_the_first_word() -> None:
    notes = Notes(before=[Note("ran", "anna", "running", 5, 4, 70), Note("ended", "ben", "ended", 2, 0, 3)])
    book = book_of(notes)
    assert [(use.request_id, use.state, use.cached_tokens) for use in book.known(["ran", "ended"])] == [
        ("ran", "lost", 4),
        ("ended", "ended", 0),
    ]
    assert book.unclaimed(UNCLAIMED_S - 1) == []
    book.settle(["ran"])
    assert names(book.unclaimed(UNCLAIMED_S)) == ["ended"]
    book.turn(2.0)
    assert set(notes.left()) == {"ended"}


def test_a_second_restart_knows_no_less() -> None:
    notes = Notes(before=[Note("ran", "anna", "running", 5, 4, 70)])
    book_of(notes).close(1.0)
    assert [use.state for use in book_of(Notes(list(notes.left().values()))).known(["ran"])] == ["lost"]


def test_the_end_notes_everything() -> None:
    notes = Notes()
    book = book_of(notes)
    ended, running = opened(book, "ended"), opened(book, "running")
    for use in (ended, running):
        count(book, use, 2)
    book.end_answer(ended, 0.1)
    book.close(0.2)
    assert notes.is_closed
    assert {name: note.state for name, note in notes.left().items()} == {"ended": "ended", "running": "running"}


class BookMachine(RuleBasedStateMachine):
    """Whatever happens in whatever order: what is neither settled nor short of a turn's loss is known after a crash."""

    def __init__(self) -> None:
        super().__init__()
        self.notes = Notes()
        self.book = book_of(self.notes)
        self.now, self.serial = 0.0, 0
        self.uses: dict[str, Use] = {}  # not settled

    @rule(owner=st.sampled_from(["a", "b"]), n_answers=st.integers(1, 3))
    def open(self, owner: str, n_answers: int) -> None:
        self.serial += 1
        name = f"r{self.serial}"
        self.uses[name] = opened(self.book, name, owner=owner, n_answers=n_answers)

    @precondition(lambda self: self.uses)
    @rule(data=st.data(), n=st.integers(1, 100), ends=st.booleans(), settles=st.booleans())
    def go_on(self, data: st.DataObject, n: int, ends: bool, settles: bool) -> None:
        use = self.uses[data.draw(st.sampled_from(sorted(self.uses)))]
        for _ in range(n if use.n_answers else 0):
            self.book.count_token(use)
            if use.completion_tokens - use.noted_tokens >= NOTED_TOKENS:
                self.turn(0.01)
        if ends and use.n_answers:
            self.book.end_answer(use, self.now)
        if settles:
            self.book.settle([use.request_id])
            del self.uses[use.request_id]

    @rule(owner=st.sampled_from(["a", "b"]))
    def lose(self, owner: str) -> None:
        for use in self.uses.values():
            while use.owner == owner and use.n_answers:
                self.book.end_answer(use, self.now)
        self.book.leave(owner)
        self.turn(0.01)
        offered = names(self.book.unclaimed(self.now))
        assert {name for name, use in self.uses.items() if use.owner == owner} <= set(offered)
        for name in offered:
            use, left = self.uses[name], self.notes.left()
            assert use.completion_tokens == (left[name].completion_tokens if name in left else 0)
        assert set(offered) <= set(self.uses)

    @rule(seconds=st.floats(0.01, 3.0))
    def turn(self, seconds: float) -> None:
        self.now += seconds
        self.book.turn(self.now)
        left = self.notes.left()
        assert len(self.book) == len(self.uses)
        assert set(left) <= set(self.uses) | self.taken_back_soon()
        for name, use in self.uses.items():
            known = left[name].completion_tokens if name in left else 0
            assert known == use.noted_tokens
            assert use.completion_tokens - known < NOTED_TOKENS, "no more than this is lost"
            if seconds >= NOTED_EVERY_S:
                assert known == use.completion_tokens

    def taken_back_soon(self) -> set[str]:
        return {note.request_id for note in self.book._taken_back}


TestBookMachine = BookMachine.TestCase
TestBookMachine.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


def test_a_turn_costs_the_loop_next_to_nothing(tmp_path: Path) -> None:
    """32 requests get a token each, for two seconds of steps; what the disk does is another thread's."""
    n_turns, step_s = 64, 0.03
    book = book_of(Journal(tmp_path))
    uses = [opened(book, f"r{number}") for number in range(32)]
    rounds, now = [], 0.0
    for _ in range(8):
        began = time.perf_counter()
        for _ in range(n_turns):
            now += step_s
            for use in uses:
                book.count_token(use)
            book.turn(now)
        rounds.append((time.perf_counter() - began) / n_turns)
    book.close(now)
    assert min(rounds) < 20e-6
