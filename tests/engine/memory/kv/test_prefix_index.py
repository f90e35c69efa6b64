"""Prefix keys and hits: the right requests share, nobody else does, and a miss has a reason."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.kv.manager import KvManager
from lorikeet_engine.memory.kv.prefix_index import MissReason, PrefixChain, PrefixHit, prefix_root
from lorikeet_engine.memory.ledger import Owner

BLOCK = 4
ANNA = Owner("anna", "d1")


def root(tenant: str = "anna", adapter: str | None = "d1", salt: bytes = b"") -> bytes:
    return prefix_root(model="m", kv_format="bf16", block_size=BLOCK, tenant=tenant, salt=salt, adapter=adapter)


def chain(tokens: list[int], root_: bytes | None = None) -> PrefixChain:
    made = PrefixChain(root_ or root(), BLOCK)
    made.extend(tokens, len(tokens))
    return made


def manager(n_blocks: int = 33, *, enable_prefix_caching: bool = True) -> KvManager:
    return KvManager(n_blocks=n_blocks, block_size=BLOCK, block_bytes=1, enable_prefix_caching=enable_prefix_caching)


def run(kv: KvManager, name: str, tokens: list[int], root_: bytes | None = None, owner: Owner = ANNA) -> PrefixHit:
    """Admit and compute all of `tokens`."""
    keys = chain(tokens, root_)
    hit = kv.lookup(keys, len(tokens))
    kv.admit(name, owner, len(tokens), keys, hit)
    kv.grow(name, len(tokens))
    kv.commit(name, len(tokens), tokens)
    return hit


def warm(kv: KvManager, tokens: list[int], root_: bytes | None = None, owner: Owner = ANNA) -> None:
    run(kv, "warm", tokens, root_, owner)
    kv.release("warm")


texts = st.text(st.characters(), max_size=6) | st.sampled_from(["base", "adapter", "salt", "tenant", "\x00", "\ud800"])
identities = st.tuples(texts, texts, st.integers(1, 300), texts, st.binary(max_size=6), st.none() | texts)


@given(identities, identities)
def test_different_identities_never_share_a_root(
    one: tuple[str, str, int, str, bytes, str | None], other: tuple[str, str, int, str, bytes, str | None]
) -> None:
    names = ("model", "kv_format", "block_size", "tenant", "salt", "adapter")
    roots = [prefix_root(**dict(zip(names, identity, strict=True))) for identity in (one, other)]  # type: ignore[arg-type]
    assert (roots[0] == roots[1]) == (one == other)
    assert (sha256(roots[0]).digest() == sha256(roots[1]).digest()) == (one == other)


@given(st.text(max_size=8), st.integers(0, 8), st.integers(0, 8))
def test_moving_characters_between_fields_changes_the_root(text: str, first: int, second: int) -> None:
    def split(at: int) -> bytes:
        return root(tenant=text[:at], adapter=text[at:])

    assert (split(first) == split(second)) == (text[:first] == text[:second])


def test_the_base_model_is_not_an_adapter_without_a_name() -> None:
    assert root(adapter=None) != root(adapter="")
    assert root(adapter=None) != root(adapter="base")


def test_keys_are_the_plain_chain_of_hashes() -> None:
    keys = chain([1, 2, 3, 4, 5, 6, 7, -1, 9]).keys
    first = sha256(root() + b"".join(t.to_bytes(4, "little") for t in (1, 2, 3, 4))).digest()
    second = sha256(first + b"".join(t.to_bytes(4, "little", signed=True) for t in (5, 6, 7, -1))).digest()
    assert keys == [first, second]


@given(st.lists(st.integers(0, 2**31 - 1), max_size=40), st.lists(st.integers(0, 40), max_size=6))
def test_a_chain_extended_in_steps_equals_one_made_at_once(tokens: list[int], steps: list[int]) -> None:
    grown = PrefixChain(root(), BLOCK)
    for step in sorted(min(step, len(tokens)) for step in steps):
        grown.extend(tokens, step)
    grown.extend(tokens, len(tokens))
    assert grown.keys == chain(tokens).keys
    assert grown.fingerprints == chain(tokens).fingerprints


@given(st.lists(st.integers(0, 1), min_size=16, max_size=16), st.lists(st.integers(0, 1), min_size=16, max_size=16))
def test_two_prompts_share_exactly_their_common_full_blocks(one: list[int], other: list[int]) -> None:
    kv = manager()
    warm(kv, one)
    common = next((i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), 16)
    assert len(kv.lookup(chain(other), 16).blocks) == min(common, 15) // BLOCK


def test_a_branch_shares_the_beginning_and_then_goes_its_own_way() -> None:
    parent = chain(list(range(12)))
    child = parent.branch(2)
    child.extend([*range(8), 50, 51, 52, 53], 12)
    assert child.keys[:2] == parent.keys[:2]
    assert child.keys[2] != parent.keys[2]
    assert len(parent.keys) == 3


@pytest.mark.parametrize("n_tokens", [4, 5, 7, 8, 9, 11, 12, 13])
def test_a_fully_cached_prompt_still_has_a_token_to_compute(n_tokens: int) -> None:
    kv = manager()
    warm(kv, list(range(20)))
    hit = kv.lookup(chain(list(range(n_tokens))), n_tokens)
    n_left = n_tokens - len(hit.blocks) * BLOCK
    assert 1 <= n_left <= BLOCK
    assert hit.reason is (
        MissReason.TOO_SHORT if n_tokens <= BLOCK else MissReason.PARTIAL_TAIL if n_tokens % BLOCK else None
    )


def test_a_block_is_found_only_after_the_step_that_wrote_it() -> None:
    kv, tokens = manager(), list(range(10))
    for name in ("a", "b"):
        keys = chain(tokens)
        hit = kv.lookup(keys, 10)
        assert hit.blocks == ()
        kv.admit(name, ANNA, 10, keys, hit)
        kv.grow(name, 10)
    kv.commit("a", 10, tokens)
    assert len(kv.lookup(chain(tokens), 10).blocks) == 2


def test_a_duplicate_stays_private_and_is_clean_when_released() -> None:
    kv, tokens = manager(), list(range(10))
    for name in ("a", "b"):
        kv.admit(name, ANNA, 10, chain(tokens), PrefixHit((), None))
        kv.grow(name, 10)
    kv.commit("a", 10, tokens)
    kv.commit("b", 10, tokens)
    assert kv.lookup(chain(tokens), 10).blocks == kv.block_tables()["a"][:2]
    kv.release("b")
    assert kv.snapshot().cached == 0
    kv.release("a")
    assert kv.snapshot().cached == 2
    kv.audit()


def test_a_last_block_that_lacks_its_last_token_is_not_found() -> None:
    kv, tokens = manager(), list(range(8))
    kv.admit("a", ANNA, 8, chain(tokens), PrefixHit((), None))
    kv.grow("a", 8)
    kv.commit("a", 7, tokens)
    assert len(kv.lookup(chain([*tokens, 8]), 9).blocks) == 1


def test_generated_tokens_are_found_in_the_next_turn() -> None:
    kv = manager()
    run(kv, "a", list(range(6)))
    kv.grow("a", 9)
    kv.commit("a", 8, list(range(9)))
    kv.release("a")
    assert len(kv.lookup(chain(list(range(10))), 10).blocks) == 2


def test_the_same_tokens_hit_for_their_owner_and_for_nobody_else() -> None:
    kv, tokens = manager(), list(range(10))
    warm(kv, tokens)
    assert len(kv.lookup(chain(tokens), 10).blocks) == 2
    for other in (root(tenant="ben"), root(adapter="d2"), root(adapter=None), root(salt=b"mine")):
        assert kv.lookup(chain(tokens, other), 10).blocks == ()


def test_leaves_are_evicted_before_their_parents() -> None:
    kv = manager(n_blocks=5)
    warm(kv, list(range(16)))
    for n_left in (3, 2, 1):
        kv.admit(f"other{n_left}", ANNA, 4, chain([90]), PrefixHit((), None))
        assert len(kv.lookup(chain(list(range(16))), 17).blocks) == n_left


def test_clean_blocks_are_used_before_anything_is_evicted() -> None:
    kv = manager(n_blocks=6)
    warm(kv, list(range(8)))
    run(kv, "a", list(range(50, 62)))
    assert len(kv.lookup(chain(list(range(9))), 9).blocks) == 2


def test_the_least_recently_released_prefix_is_evicted_first() -> None:
    kv = manager(n_blocks=5)
    warm(kv, [1, 1, 1, 1, 1, 1, 1, 1])
    warm(kv, [2, 2, 2, 2, 2, 2, 2, 2])
    warm(kv, [1, 1, 1, 1, 1, 1, 1, 1, 1])
    kv.admit("other", ANNA, 8, chain([90]), PrefixHit((), None))
    assert len(kv.lookup(chain([1] * 9), 9).blocks) == 2
    assert len(kv.lookup(chain([2] * 9), 9).blocks) == 0


def test_a_cooled_adapter_is_evicted_first_and_from_its_leaves() -> None:
    kv, ben = manager(n_blocks=6), Owner("ben", "d9")
    warm(kv, list(range(8)))
    warm(kv, list(range(12)), root("ben", "d9"), ben)
    kv.cool(AdapterKey("ben", "d9"))
    kv.admit("other", ANNA, 8, chain([90]), PrefixHit((), None))
    assert len(kv.lookup(chain(list(range(9))), 9).blocks) == 2
    assert len(kv.lookup(chain(list(range(13)), root("ben", "d9")), 13).blocks) == 1


def test_a_recycled_block_is_never_found_under_its_old_key() -> None:
    kv = manager(n_blocks=3)
    warm(kv, [1] * 8)
    run(kv, "a", [2] * 8)
    assert kv.lookup(chain([1] * 9), 9).blocks == ()
    assert kv.lookup(chain([2] * 9), 9).blocks == kv.block_tables()["a"]
    kv.audit()


def test_a_retired_adapter_is_forgotten_and_its_blocks_come_free() -> None:
    kv = manager()
    warm(kv, list(range(9)))
    run(kv, "a", list(range(50, 59)))
    assert kv.purge(AdapterKey("anna", "d1")) == 2
    assert kv.snapshot().cached == 0
    assert kv.lookup(chain(list(range(9))), 9).blocks == ()
    assert kv.lookup(chain(list(range(50, 59))), 9).blocks == ()
    kv.release("a")
    assert kv.snapshot().free == kv.n_usable


def test_a_prompt_nobody_has_asked_is_cold() -> None:
    assert manager().lookup(chain(list(range(9))), 9).reason is MissReason.COLD


def test_a_prompt_without_a_full_block_before_its_last_token_is_too_short() -> None:
    assert manager().lookup(chain(list(range(4))), 4).reason is MissReason.TOO_SHORT


def test_with_the_cache_off_nothing_is_found_and_the_reason_says_so() -> None:
    kv = manager(enable_prefix_caching=False)
    warm(kv, list(range(9)))
    assert kv.lookup(chain(list(range(9))), 9) == ((), MissReason.DISABLED)
    assert kv.snapshot().cached == 0


def test_a_prefix_whose_room_was_needed_is_reported_as_evicted() -> None:
    kv = manager(n_blocks=5)
    warm(kv, [1] * 8)
    run(kv, "a", [2] * 16)
    assert kv.lookup(chain([1] * 9), 9).reason is MissReason.EVICTED


def test_a_prefix_under_another_salt_is_reported_as_salt() -> None:
    kv = manager()
    warm(kv, list(range(9)))
    assert kv.lookup(chain(list(range(9)), root(salt=b"mine")), 9).reason is MissReason.SALT


def test_a_prefix_of_another_adapter_is_reported_as_adapter_version() -> None:
    kv = manager()
    warm(kv, list(range(9)))
    assert kv.lookup(chain(list(range(9)), root(adapter="d2")), 9).reason is MissReason.ADAPTER_VERSION


def test_a_miss_is_never_explained_by_what_another_tenant_has_asked() -> None:
    kv = manager()
    warm(kv, list(range(9)))
    assert kv.lookup(chain(list(range(9)), root(tenant="ben")), 9).reason is MissReason.COLD


def test_a_prefix_that_is_being_computed_names_who_computes_it() -> None:
    kv, tokens = manager(), list(range(12))
    kv.admit("a", ANNA, 12, chain(tokens), PrefixHit((), None))
    assert kv.lookup(chain(tokens), 12).reason is MissReason.IN_PROGRESS
    assert kv.in_progress(chain(tokens), 0) == "a"
    kv.grow("a", 12)
    kv.commit("a", 8, tokens)
    assert kv.in_progress(chain(tokens), 2) is None, "the block of the last token is no use to anybody"
    assert kv.in_progress(chain([*tokens, 12]), 2) == "a"
    kv.release("a")
    assert kv.in_progress(chain([*tokens, 12]), 2) is None


def test_what_is_remembered_of_the_past_is_bounded() -> None:
    kv = manager(n_blocks=3)
    for token in range(40):
        warm(kv, [token] * 8)
    kv.audit()
    assert kv.lookup(chain([39] * 9), 9).reason is MissReason.PARTIAL_TAIL
    assert kv.lookup(chain([38] * 9), 9).reason is MissReason.EVICTED
    assert kv.lookup(chain([0] * 9), 9).reason is MissReason.COLD
