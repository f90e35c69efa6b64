"""The bounded memory of answers, and that to forget one key costs nothing of the others."""

from __future__ import annotations

import time

from lorikeet_platform.auth.verifying import remembered
from lorikeet_platform.auth.verifying.remembered import Remembered


def filled(n: int) -> Remembered[int]:
    memory: Remembered[int] = Remembered(10_000)
    for number in range(n):
        tenant = f"ten_{number % 50}"
        memory.put(number.to_bytes(4), number, 1, 0, owner=tenant, marks=(tenant, f"key_{number}"))
    return memory


def test_the_least_recently_used_goes_first_with_its_marks() -> None:
    memory: Remembered[int] = Remembered(2)
    for number in (1, 2):
        memory.put(bytes([number]), number, 1, 0, marks=("all", str(number)))
    assert memory.find(b"\1", 0) == 1
    memory.put(b"\3", 3, 1, 0, marks=("all", "3"))
    assert [memory.find(bytes([number]), 0) for number in (1, 2, 3)] == [1, None, 3]
    assert memory._marked == {"all": {b"\1", b"\3"}, "1": {b"\1"}, "3": {b"\3"}}
    memory.forget("", "all")
    assert (len(memory), memory._marked) == (0, {})


def test_what_is_forgotten_is_what_has_the_mark() -> None:
    memory = filled(1_000)
    memory.forget("ten_7", "key_7")
    assert len(memory) == 999
    memory.forget("ten_7", "ten_7")
    assert len(memory) == 980
    memory.forget_all()
    assert (len(memory), memory._marked) == (0, {})


def test_what_began_before_its_owner_was_forgotten_is_not_kept() -> None:
    memory = filled(0)
    began = memory.n_forgotten
    memory.forget("ten_1", "ten_1")
    for owner in ("ten_1", "ten_2"):
        memory.put(owner.encode(), 1, 1, began, owner=owner)
    assert [memory.find(owner, 0) for owner in (b"ten_1", b"ten_2")] == [None, 1]
    memory.put(b"ten_1", 1, 1, memory.n_forgotten, owner="ten_1")
    assert memory.find(b"ten_1", 0) == 1
    memory.forget_all()
    memory.put(b"ten_2", 1, 1, began, owner="ten_2")
    assert len(memory) == 0


def test_owners_that_are_no_longer_kept_count_as_forgotten() -> None:
    memory = filled(0)
    began = memory.n_forgotten
    for number in range(remembered.OWNERS_KEPT + 1):
        memory.forget(str(number), str(number))
    memory.put(b"0", 1, 1, began, owner="0")
    assert len(memory) == 0
    assert len(memory._forgotten_at) == remembered.OWNERS_KEPT


def test_forgetting_one_key_looks_at_no_other() -> None:
    memory = filled(10_000)
    started = time.thread_time()
    for number in range(100):
        memory.forget("ten_x", f"key_x{number}")
    assert (time.thread_time() - started) / 100 < 0.001  # a look at all takes five times as long
