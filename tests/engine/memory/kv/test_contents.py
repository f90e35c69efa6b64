"""Who holds which KV block, proven against a plain model that holds the contents: nobody reads what another wrote."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.kv.manager import KvManager
from lorikeet_engine.memory.kv.prefix_index import PrefixChain, prefix_root
from lorikeet_engine.memory.ledger import MemoryState, Owner

BLOCK, BLOCK_BYTES = 4, 100
OWNERS = [Owner("anna", "d1"), Owner("anna", "d2"), Owner("anna"), Owner("ben", "d1")]

Content = tuple[bytes, tuple[int, ...]]
"""What the keys and values at one position depend on: the root, and every token up to there."""


def chain_of(owner: Owner, tokens: list[int], salt: bytes = b"") -> PrefixChain:
    root = prefix_root(
        model="m",
        kv_format="bf16",
        block_size=BLOCK,
        tenant=owner.tenant,
        salt=salt,
        adapter=owner.adapter or None,
    )
    chain = PrefixChain(root, BLOCK)
    chain.extend(tokens, len(tokens))
    return chain


@dataclass
class Sequence:
    """A request as the model knows it."""

    owner: Owner
    chain: PrefixChain
    tokens: list[int]
    n_computed: int = 0
    n_promised_tokens: int = 0

    def content(self, position: int) -> Content:
        return self.chain.root, tuple(self.tokens[: position + 1])


@dataclass
class Memory:
    """Device blocks and host slots with what is in them, and copies that are planned but not carried out."""

    device: dict[tuple[int, int], Content] = field(default_factory=dict)
    host: dict[tuple[int, int], Content] = field(default_factory=dict)
    planned: list[tuple[str, int, int]] = field(default_factory=list)

    def arriving(self) -> set[int]:
        """Device blocks that a planned copy is going to fill."""
        return {target for kind, _, target in self.planned if kind != "out"}

    def carry_out(self, order: random.Random) -> None:
        """In any order: the manager must not rely on one."""
        order.shuffle(self.planned)
        for kind, source, target in self.planned:
            read, written = {
                "out": (self.device, self.host),
                "in": (self.host, self.device),
                "fork": (self.device, self.device),
            }[kind]
            for offset in range(BLOCK):
                if (source, offset) in read:
                    written[target, offset] = read[source, offset]
        self.planned.clear()


class KvMachine(RuleBasedStateMachine):
    """Everything that can be done to the manager, in any order, over a pool that is too small for it."""

    @initialize(
        n_blocks=st.integers(3, 14), n_host_slots=st.integers(0, 6), caching=st.sampled_from([True] * 4 + [False])
    )
    def start(self, n_blocks: int, n_host_slots: int, caching: bool) -> None:
        self.kv = KvManager(
            n_blocks=n_blocks,
            block_size=BLOCK,
            block_bytes=BLOCK_BYTES,
            n_host_slots=n_host_slots,
            enable_prefix_caching=caching,
        )
        self.memory = Memory()
        self.running: dict[str, Sequence] = {}
        self.swapped: dict[str, Sequence] = {}
        self.serial = 0

    def new_name(self) -> str:
        self.serial += 1
        return f"r{self.serial}"

    def pick(self, data: st.DataObject, names: dict[str, Sequence]) -> str:
        return data.draw(st.sampled_from(sorted(names)))

    @rule(
        owner=st.sampled_from(OWNERS[:1] * 4 + OWNERS[1:]),
        salt=st.sampled_from([b"", b"", b"s"]),
        n=st.integers(1, 20),
        n_common=st.sampled_from([0, BLOCK, 2 * BLOCK + 1, 30]),
        computes=st.booleans(),
    )
    def admit(self, owner: Owner, salt: bytes, n: int, n_common: int, computes: bool) -> None:
        tokens = [7 if position < n_common else position % 2 for position in range(n)]
        chain = chain_of(owner, tokens, salt)
        hit = self.kv.lookup(chain, n)
        assert len(hit.blocks) * BLOCK < n, "one token is always left to compute"
        sequence = Sequence(owner, chain, tokens, len(hit.blocks) * BLOCK, n)
        for position in range(sequence.n_computed):
            at = hit.blocks[position // BLOCK], position % BLOCK
            assert self.memory.device[at] == sequence.content(position), "a hit on other content"
        needed, available = self.kv.n_needed(n, hit), self.kv.n_available
        name = self.new_name()
        if needed > available:
            with pytest.raises(ValueError, match="more blocks"):
                self.kv.admit(name, owner, n, chain, hit)
        else:
            self.kv.admit(name, owner, n, chain, hit)
            self.running[name] = sequence
            assert self.kv.n_available == available - needed
            if computes:
                self.write(name, n - sequence.n_computed, token=0)
                self.kv.commit(name, n, tokens)

    def ready(self) -> dict[str, Sequence]:
        """Running requests whose blocks are all filled."""
        arriving, tables = self.memory.arriving(), self.kv.block_tables()
        return {name: s for name, s in self.running.items() if arriving.isdisjoint(tables[name])}

    @precondition(lambda self: self.ready())
    @rule(data=st.data(), n=st.integers(1, 3 * BLOCK), token=st.integers(0, 1), commits=st.booleans())
    def compute(self, data: st.DataObject, n: int, token: int, commits: bool) -> None:
        """A chunk of the prompt, or several generated tokens at once."""
        name = self.pick(data, self.ready())
        self.write(name, n, token)
        if commits:
            self.kv.commit(name, self.running[name].n_computed, self.running[name].tokens)

    def write(self, name: str, n: int, token: int) -> None:
        """Grow by `n` tokens that are not computed yet, checking every block before it is written."""
        sequence = self.running[name]
        stop = sequence.n_computed + n
        table, available = self.kv.block_tables()[name], self.kv.n_available
        promised = max(0, self.kv.blocks_for(sequence.n_promised_tokens) - len(table))
        beyond = max(0, self.kv.blocks_for(stop) - len(table) - promised)
        view = self.kv.grow(name, stop)
        assert (view is None) == (beyond > available)
        if view is None:
            assert self.kv.block_tables()[name] == table
            return
        assert view[: len(table)] == table, "a table only ever grows at its end"
        sequence.tokens += [token] * (stop - len(sequence.tokens))
        for position in range(sequence.n_computed, stop):
            block, offset = view[position // BLOCK], position % BLOCK
            pool = self.kv._blocks.pool
            assert pool.refs[block] == 1, "written with a second holder"
            assert pool.key_of[block] is None, "written while others can find it"
            self.memory.device[block, offset] = sequence.content(position)
        sequence.n_computed = stop

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        name = self.pick(data, self.running)
        sequence = self.running[name]
        self.kv.commit(name, sequence.n_computed, sequence.tokens)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), n_more=st.integers(0, 9))
    def fork(self, data: st.DataObject, n_more: int) -> None:
        parent_name = self.pick(data, self.running)
        parent = self.running[parent_name]
        n_shared = data.draw(st.integers(0, parent.n_computed))
        child = Sequence(parent.owner, parent.chain, parent.tokens[: n_shared + n_more], n_shared, n_shared + n_more)
        name, available = self.new_name(), self.kv.n_available
        tail = self.kv.block_tables()[parent_name][n_shared // BLOCK :][:1] if n_shared % BLOCK else ()
        needed = self.kv.blocks_for(child.n_promised_tokens) - n_shared // BLOCK
        copies = self.kv.fork(parent_name, name, parent.owner, n_shared, child.n_promised_tokens)
        assert (copies is None) == (needed > available or not self.memory.arriving().isdisjoint(tail))
        if copies is not None:
            assert tuple(source for source, _ in copies) == tail
            self.memory.planned += [("fork", *copy) for copy in copies]
            self.running[name] = child
            assert self.kv.n_available == available - needed

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def swap_out(self, data: st.DataObject) -> None:
        name = self.pick(data, self.running)
        sequence, before = self.running[name], self.kv.block_tables()[name]
        copies = self.kv.swap_out(name, sequence.n_computed)
        if copies is None:
            assert self.kv.block_tables()[name] == before
            return
        assert self.memory.arriving().isdisjoint(before[: self.kv.blocks_for(sequence.n_computed)])
        self.memory.planned += [("out", *copy) for copy in copies]
        self.swapped[name] = self.running.pop(name)

    @precondition(lambda self: self.swapped)
    @rule(data=st.data(), n_more=st.integers(1, 6))
    def swap_in(self, data: st.DataObject, n_more: int) -> None:
        name = self.pick(data, self.swapped)
        sequence, available = self.swapped[name], self.kv.n_available
        n_tokens = sequence.n_computed + n_more
        needed = self.kv.n_needed_to_return(name, n_tokens)
        back = self.kv.swap_in(name, n_tokens)
        if back is None:
            assert needed > available or self.memory.planned
            return
        assert self.kv.n_available == available - needed
        assert back.n_computed == sequence.n_computed or back.n_computed % BLOCK == 0
        assert back.n_computed <= sequence.n_computed
        self.memory.planned += [("in", *copy) for copy in back.copies]
        sequence.n_computed, sequence.n_promised_tokens = back.n_computed, n_tokens
        self.running[name] = self.swapped.pop(name)

    @rule(seed=st.integers(0, 1000))
    def finish_copies(self, seed: int) -> None:
        self.memory.carry_out(random.Random(seed))
        self.kv.finish_copies()
        assert self.kv.n_in_flight == 0

    @precondition(lambda self: len(self.running) + len(self.swapped) > 2)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        name = self.pick(data, self.running | self.swapped)
        self.kv.release(name)
        self.running.pop(name, None)
        self.swapped.pop(name, None)
        with pytest.raises(ValueError, match="holds no blocks"):
            self.kv.release(name)

    @rule(owner=st.sampled_from(OWNERS), retired=st.integers(0, 5).map(lambda n: n == 5))
    def an_adapter_leaves(self, owner: Owner, retired: bool) -> None:
        """Mostly the device alone: a pool that is purged all the time shares nothing."""
        available = self.kv.n_available
        if not retired:
            self.kv.cool(AdapterKey(owner.tenant, owner.adapter))
            return
        self.kv.purge(AdapterKey(owner.tenant, owner.adapter))
        assert self.kv.n_available == available
        for tokens in ([7] * 30, [position % 2 for position in range(30)]):
            assert self.kv.lookup(chain_of(owner, tokens), 30).blocks == ()

    @invariant()
    def everything_adds_up(self) -> None:
        self.kv.audit()
        tables = self.kv.block_tables()
        assert tables.keys() == self.running.keys()
        held = {block for table in tables.values() for block in table}
        promised = sum(
            max(0, self.kv.blocks_for(s.n_promised_tokens) - len(tables[name])) for name, s in self.running.items()
        )
        assert self.kv.n_available == self.kv.n_usable - len(held) - promised - self.kv.n_in_flight
        assert self.kv.snapshot().fragmentation <= len(self.running) * (BLOCK - 1) * BLOCK_BYTES // BLOCK
        for tenant in ("anna", "ben"):
            own = {b for name, s in self.running.items() if s.owner.tenant == tenant for b in tables[name]}
            assert self.kv.ledger.in_use_of(tenant) >= len(own) * BLOCK_BYTES

    @invariant()
    def every_table_reads_back_its_own_tokens(self) -> None:
        tables, arriving = self.kv.block_tables(), self.memory.arriving()
        for name, sequence in self.running.items():
            for position in range(sequence.n_computed):
                block, offset = tables[name][position // BLOCK], position % BLOCK
                assert block in arriving or self.memory.device[block, offset] == sequence.content(position)

    def teardown(self) -> None:
        if hasattr(self, "kv"):
            for name in [*self.running, *self.swapped]:
                self.kv.release(name)
            self.kv.finish_copies()
            self.kv.audit()
            assert self.kv.n_available == self.kv.n_usable
            assert self.kv.swap_ledger[MemoryState.FREE] == self.kv.swap_ledger.capacity


TestKvMachine = KvMachine.TestCase
TestKvMachine.settings = settings(max_examples=120, stateful_step_count=50, deadline=None)
