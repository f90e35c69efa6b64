"""Adapters that rotate, that are read again, that may not run at once, and that are dear for everybody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from lorikeet_engine.cost import adapter_bytes
from lorikeet_platform.doctor.evidence import words
from lorikeet_platform.doctor.examined import Registered, Seen, Surroundings
from lorikeet_platform.doctor.rules.adapters import adapter_thrash, adapters_per_step, host_cache, huge_rank
from tests.support.engine_figures import A_POOL, engine_design, resident
from tests.support.seen_engine import seen, times, traffic, use, work

MIB = 1 << 20
SMALL = replace(A_POOL, name="arena", capacity=2 * MIB)


def rotating(n: int = 4, *, loads: int = 20, evictions: int = 18, heat: float = 3.0, arena: Any = SMALL) -> Seen:
    """So many adapters of 1 MiB each take turns in 2 MiB."""
    names = [f"{i}" * 4 for i in range(n)]
    return seen(
        {
            "adapters": [resident(name, n_bytes=MIB, heat=heat) for name in names],
            "arena": arena,
            "host": SMALL,
            "adapter_traffic": traffic(host=loads, room=evictions, stall_s=6.0),
            "histograms": [
                times("ttft", [0.5] * 40, label="adapter"),
                times("adapter_wait", [0.15] * 40, label="adapter"),
            ],
            "adapter_uses": [use(name, loads=loads // n if heat > 1 else 0, tokens=10) for name in names],
        }
    )


def test_adapters_that_rotate_are_found_with_an_arena_that_holds_them() -> None:
    finding = adapter_thrash(rotating())
    assert finding is not None
    assert finding.setting == f"LORIKEET_ENGINE__ADAPTER_POOL_BYTES={5 * MIB}"  # 4.4, in whole MiB
    assert finding.cost.share == pytest.approx(0.3)
    evidence = {item.label: item.value for item in finding.evidence}
    assert evidence["loads"] == "10 a minute"
    assert evidence["requests waited for nothing else"] == "6.00 s"
    assert evidence["loads of anna/0000"] == "5"


@pytest.mark.parametrize(
    "calm",
    [
        rotating(loads=5, evictions=5),  # too few to tell
        rotating(evictions=9),  # most loads pushed nothing out
        rotating(n=18),  # hardly any came twice
        rotating(heat=0.4),  # nobody uses them now
        rotating(arena=replace(SMALL, capacity=4 * MIB)),  # they fit
    ],
)
def test_adapters_that_are_loaded_once_or_fit_do_not_thrash(calm: Seen) -> None:
    assert adapter_thrash(calm) is None


def test_adapters_that_the_engine_has_forgotten_count_for_what_they_did_in_the_window() -> None:
    uses = [use(f"{i}" * 4, loads=5) for i in range(4)]
    after = {
        "adapters": [resident("0000", n_bytes=MIB, heat=3.0)],
        "arena": SMALL,
        "adapter_traffic": traffic(disk=20, room=18),
        "adapter_uses": uses,
    }
    finding = adapter_thrash(seen(after))
    assert finding is not None
    assert finding.setting == f"LORIKEET_ENGINE__ADAPTER_POOL_BYTES={5 * MIB}"


@pytest.mark.parametrize(("disk", "host_mib", "is_found"), [(20, 2, True), (5, 2, False), (20, 4, False)])
def test_reading_the_disk_again_is_found(disk: int, host_mib: int, is_found: bool) -> None:
    finding = host_cache(
        seen(
            {
                "adapters": [resident(f"{i}" * 4, n_bytes=MIB, heat=3.0) for i in range(4)],
                "host": replace(A_POOL, name="host", capacity=host_mib * MIB),
                "adapter_traffic": traffic(disk=disk, host=4),
            }
        )
    )
    assert (finding is not None) is is_found
    if finding:
        assert finding.setting == f"LORIKEET_ENGINE__HOST_ADAPTER_CACHE_BYTES={5 * MIB}"


@pytest.mark.parametrize(("n_running", "n_waiting", "is_found"), [(4, 3, True), (3, 3, False), (4, 0, False)])
def test_a_cap_on_adapters_is_found_while_seats_are_free(n_running: int, n_waiting: int, is_found: bool) -> None:
    running = [resident(f"r{i}", requests=1) for i in range(n_running)]
    waiting = [resident(f"w{i}", state="host", waiting=1) for i in range(n_waiting)]
    moment = {"adapters": running + waiting, "waiting": n_waiting, "running": n_running}
    finding = adapters_per_step(seen(moment, between=[moment] * 2, before=moment))
    assert (finding is not None) is is_found
    if finding:
        assert finding.setting == "LORIKEET_ENGINE__MAX_ADAPTERS_PER_STEP=7"


def of_rank(rank: int) -> int:
    design = engine_design()
    return adapter_bytes(design.model, rank, itemsize=design.itemsize)


def one_large(
    *,
    rank: int = 128,
    read_share: float = 0.4,
    tokens: int = 100,
    n_others: int = 2,
    registered: Sequence[Registered] = (),
) -> Seen:
    others = [f"{i}" * 4 for i in range(n_others)]
    return seen(
        {
            "adapters": [
                resident("beef", tenant="ben", n_bytes=of_rank(rank)),
                *(resident(name, n_bytes=of_rank(16)) for name in others),
            ],
            "adapter_uses": [
                use("beef", tenant="ben", tokens=tokens, read_bytes=1000 * read_share),
                *(use(name, tokens=100, read_bytes=20) for name in others),
                use("", tokens=5, read_bytes=5, tenant=""),
            ],
            "work_by_kind": {"decode": work(read_bytes=1000)},
            "prompt_tokens_total": 600,
            "generated_tokens_total": 400,
            "steps_total": 50,
        },
        around=Surroundings(registered=lambda: registered),
    )


def version(digest: str, rank: int | None, *, adapter: str = "", tenant: str = "anna") -> Registered:
    return Registered(tenant, adapter or f"of {digest}", digest, rank)


HUGE = version("beef", 512, adapter="bard", tenant="ben")
OTHERS = [version("0000", 64), version("1111", 24)]


def test_one_huge_rank_is_found_with_whose_it_is_and_what_everybody_pays() -> None:
    """Ranks are the registry's: by its bytes this one has rank 128 on all linears, and the others 16."""
    finding = huge_rank(one_large(registered=[HUGE, *OTHERS]))
    assert finding is not None
    assert finding.setting == "LORIKEET_MAX_RANK=64"
    assert finding.cost.share == pytest.approx(0.4)
    evidence = {item.label: item.value for item in finding.evidence}
    assert evidence["adapter"] == "ben/beef"
    assert (evidence["its rank"], evidence["the highest of all others"]) == ("512", "64")
    assert evidence["its size"] == words.n_bytes(of_rank(128))
    assert evidence["the others', median"] == words.n_bytes(of_rank(16))
    assert evidence["read for ben/beef"] == "8 B a step, 40 %"


@pytest.mark.parametrize(
    "registered",
    [
        [],
        OTHERS,  # its own rank is not known
        [HUGE, OTHERS[0]],  # an adapter in use that the registry has not
        [HUGE, *OTHERS, version("cafe", None)],
        [HUGE, *OTHERS, version("cafe", 512)],  # somebody else's would be refused
    ],
)
def test_a_highest_rank_that_would_lock_others_out_or_is_not_known_is_not_asked_for(
    registered: list[Registered],
) -> None:
    finding = huge_rank(one_large(registered=registered))
    assert finding is not None
    assert finding.setting is None
    assert {item.label for item in finding.evidence} >= {"its size", "the others', median"}


@pytest.mark.parametrize(("rank", "setting"), [(512, "LORIKEET_MAX_RANK=64"), (96, "LORIKEET_MAX_RANK=96")])
def test_only_versions_of_the_huge_adapter_itself_that_are_as_huge_may_be_locked_out(rank: int, setting: str) -> None:
    older = version("cafe", rank, adapter="bard", tenant="ben")
    finding = huge_rank(one_large(registered=[HUGE, older, *OTHERS]))
    assert finding is not None
    assert finding.setting == setting


@pytest.mark.parametrize(
    "usual",
    [
        one_large(rank=32),
        one_large(read_share=0.09),
        one_large(tokens=210),  # it does a fifth of the work
        one_large(n_others=0),  # nobody else pays for it
    ],
)
def test_ranks_are_fine_where_they_are_alike_cheap_or_used(usual: Seen) -> None:
    assert huge_rank(usual) is None


def test_no_rule_about_adapters_speaks_of_an_engine_without_any() -> None:
    assert [rule(seen()) for rule in (adapter_thrash, host_cache, adapters_per_step, huge_rank)] == [None] * 4
